/* Fuzzer of credentials files, and of the headers and ranges of S3 answers: no input may crash. */
#include <stdlib.h>
#include <string.h>
#include "ufs/credentials.h"
#include "ufs/s3_answer.h"
#include "ufs/s3_endpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct credentials c = { 0 };
	struct ufs_get get = { .tag = "t", .tag_len = 1, .size = 9, .length = 9 };
	struct s3_endpoint endpoint;
	struct s3_answer answer;
	struct ufs_config config;
	char *text = malloc(size + 1);
	const char *line = (const char *)data;
	enum ufs_cause cause = UFS_CAUSE_NONE;
	uint64_t start, end, total;

	ensure(text);
	memcpy(text, data, size);
	text[size] = '\0';
	if (credentials_parse(text, size, "default", &c) < 0)
		ensure(!c.access_key && !c.secret_key);
	credentials_release(&c);
	s3_answer_init(&answer);
	for (size_t left = size; left > 0;) {
		const char *newline = memchr(line, '\n', left);
		size_t n = newline ? (size_t)(newline - line) + 1 : left;

		s3_answer_line(&answer, line, n);
		line += n;
		left -= n;
	}
	if (s3_answer_check(&answer, &get, &cause, NULL) < 0) /* any verdict, with a cause */
		ensure(cause != UFS_CAUSE_NONE && cause < UFS_CAUSE_COUNT);
	if (s3_content_range(text, &start, &end, &total) == 0)
		ensure(start <= end && end < total);
	(void)!s3_endpoint_parse(text, &endpoint, NULL); /* any verdict will do */
	if (ufs_config_parse(text, &config, NULL) == 0)
		ufs_config_release(&config);
	free(text);
	return 0;
}
