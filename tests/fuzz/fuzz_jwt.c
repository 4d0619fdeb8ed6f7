/* Fuzzer of tokens of pods: as a whole, as the claims of one whose signature is valid, and as a set of keys. */
#include <string.h>
#include "base/check.h"
#include "base/cleanup.h"
#include "master/jwt.h"
#include "tests/fuzz/seeds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct jwt_rules rules = { .issuer = "i", .audience = "granary", .now_s = 1000 };

static struct jwt_keys *issuer;

static const char claims[] = "{\"iss\":\"i\",\"aud\":[\"granary\"],\"exp\":2000,\"nbf\":10,\"sub\":"
			     "\"system:serviceaccount:n:a\","
			     "\"kubernetes.io\":{\"namespace\":\"n\",\"serviceaccount\":{\"name\":"
			     "\"a\"},\"pod\":{\"name\":\"p\","
			     "\"uid\":\"u\"}}}";
static const char key_set[] = "{\"keys\":[{\"kty\":\"EC\",\"kid\":\"k\",\"crv\":\"P-256\","
			      "\"x\":\"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY\","
			      "\"y\":\"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU\"}]}";

void fuzz_start(void)
{
	ensure(jwt_keys_parse(key_set, strlen(key_set), &issuer, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct jwt_keys *keys = NULL;
	struct jwt_pod pod = { 0 };
	struct err e = ERR_INIT;

	ensure(jwt_verify(issuer, &rules, text, size, &pod, &e) < 0 &&
		e.text[0]); /* nobody has the key */
	e = ERR_INIT;
	if (jwt_keys_parse(text, size, &keys, &e) < 0)
		ensure(!keys && e.text[0]);
	jwt_keys_free(keys);
	if (jwt_take_claims(text, size, &rules, &pod, NULL) == 0)
		ensure(pod.name_space[0] && pod.account[0] && pod.pod[0] && pod.pod_id[0] &&
			pod.expires_s > rules.now_s);
	return 0;
}

void fuzz_seeds(void)
{
	fuzz_seed("claims", claims, strlen(claims));
	fuzz_seed("keys", key_set, strlen(key_set));
	fuzz_seed("token", "eyJhbGciOiJFUzI1NiIsImtpZCI6ImsifQ.e30.AAAA", 43);
}
