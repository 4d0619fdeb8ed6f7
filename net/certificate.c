/*
 * The certificate of a cluster's servers: an Ed25519 key pair (RFC 8032) derived from a seed, and an X.509 certificate of its
 * public key, because TLS transports public keys that way. Its names, dates and signature are not checked: clients compare its
 * pin, and TLS verifies that the server has the private key. See keys_internal.h.
 *
 * OpenSSL stores the private key in its own memory, as it does a connection's keys, and clears it when it is freed.
 */
#include "net/keys_internal.h"
#include "base/hash.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

/* It does not expire (RFC 5280, 4.1.2.5). */
static bool fill(X509 *x509, EVP_PKEY *key_pair)
{
	static const unsigned char name[] = "granary";
	X509_NAME *subject = X509_get_subject_name(x509);

	return X509_set_version(x509, X509_VERSION_3) &&
	       ASN1_INTEGER_set(X509_get_serialNumber(x509), 1) &&
	       ASN1_TIME_set_string_X509(X509_getm_notBefore(x509), "20000101000000Z") &&
	       ASN1_TIME_set_string_X509(X509_getm_notAfter(x509), "99991231235959Z") &&
	       X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, name, -1, -1, 0) &&
	       X509_set_issuer_name(x509, subject) && X509_set_pubkey(x509, key_pair) &&
	       X509_sign(x509, key_pair, NULL) > 0;
}

int certificate_pin(X509 *x509, uint8_t ret_pin[PIN_BYTES])
{
	unsigned char *text = NULL;
	int len = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(x509), &text);

	if (len <= 0)
		return -ENOMEM;
	hash_sha256(text, (size_t)len, ret_pin);
	OPENSSL_free(text);
	return 0;
}

int certificate_init(struct certificate *certificate, const uint8_t seed[KEY_BYTES])
{
	struct certificate made = { 0 };

	made.key_pair = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, KEY_BYTES);
	made.x509 = X509_new();
	if (!made.key_pair || !made.x509 || !fill(made.x509, made.key_pair) ||
		certificate_pin(made.x509, made.pin) < 0) {
		certificate_release(&made);
		return -ENOMEM;
	}
	*certificate = made;
	return 0;
}

/* What `bio` holds, with a NUL; the caller's. */
static char *text_of(BIO *bio)
{
	char *data = NULL;
	long len = BIO_get_mem_data(bio, &data);

	return len > 0 ? strndup(data, (size_t)len) : NULL;
}

int certificate_pem(const struct certificate *certificate, char **ret_certificate, char **ret_key)
{
	BIO *public = BIO_new(BIO_s_mem());
	BIO *private = BIO_new(BIO_s_mem()); /* cleared when it is freed */
	char *text = NULL;
	char *key = NULL;

	if (public && private && PEM_write_bio_X509(public, certificate->x509) &&
		PEM_write_bio_PrivateKey(
			private, certificate->key_pair, NULL, NULL, 0, NULL, NULL)) {
		text = text_of(public);
		key = text_of(private);
	}
	BIO_free(public);
	BIO_free(private);
	if (!text || !key) {
		if (key)
			explicit_bzero(key, strlen(key));
		free(text);
		free(key);
		return -ENOMEM;
	}
	*ret_certificate = text;
	*ret_key = key;
	return 0;
}

void certificate_release(struct certificate *certificate)
{
	X509_free(certificate->x509);
	EVP_PKEY_free(certificate->key_pair); /* clears the private key */
	*certificate = (struct certificate){ 0 };
}
