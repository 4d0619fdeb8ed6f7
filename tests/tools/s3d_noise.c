/* The bytes of synthetic objects. See s3d_noise.h. */
#include "tests/tools/s3d_noise.h"
#include "base/hash.h"
#include "base/limits.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *s3d_noise_new(size_t extra)
{
	static const char seed[] = "granary s3d";
	char *noise = malloc(S3D_NOISE_BYTES + extra);
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();

	if (!noise || !ctx || !EVP_DigestInit_ex(ctx, EVP_shake128(), NULL) ||
		!EVP_DigestUpdate(ctx, seed, sizeof(seed) - 1) ||
		!EVP_DigestFinalXOF(ctx, (unsigned char *)noise, S3D_NOISE_BYTES)) {
		free(noise);
		noise = NULL;
	} else {
		memcpy(noise + S3D_NOISE_BYTES, noise, extra);
	}
	EVP_MD_CTX_free(ctx);
	return noise;
}

uint64_t s3d_noise_start(const char *key, uint64_t version)
{
	char seed[4 * LIMIT_KEY_BYTES + 24];
	uint8_t sum[SHA256_BYTES];
	uint64_t n = 0;

	(void)snprintf(seed, sizeof(seed), version ? "%s\n%llu" : "%s", key,
		(unsigned long long)version); /* fits */
	hash_sha256(seed, strlen(seed), sum);
	for (int i = 7; i >= 0; i--)
		n = n << 8 | sum[i];
	return n % S3D_NOISE_BYTES;
}
