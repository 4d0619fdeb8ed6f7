/*
 * Fuzzer of LIST answers and errors of S3: no input may crash, and a page that is accepted is
 * sorted, within bounds and below the prefix. The first byte chooses the prefix.
 */
#include <stdlib.h>
#include <string.h>
#include "ufs/lister_split.h"
#include "ufs/s3_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rows(const struct ufs_object *rows, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		ensure(rows[i].key_len <= LIMIT_KEY_BYTES && rows[i].tag_len <= LIMIT_TAG_BYTES);
		ensure(i == 0 || lister_key_cmp(rows[i - 1].key, rows[i - 1].key_len, rows[i].key,
					 rows[i].key_len) < 0);
	}
}

/* What a listing does with a page: learning from it and cutting behind it. */
static void cut(const struct ufs_page *page)
{
	struct lister_alphabet alphabet = { .n = 0 };
	struct lister_lesson lesson;
	struct lister_key pos;
	struct lister_key key;
	uint32_t n;

	lister_learn(page->objects, page->n_objects, &lesson);
	lister_alphabet_add(&alphabet, &lesson);
	if (page->n_objects == 0)
		return;
	lister_key_set(&pos, page->objects[page->n_objects - 1].key,
		page->objects[page->n_objects - 1].key_len);
	n = lister_candidates(&alphabet, &pos, NULL, lesson.shared);
	for (uint32_t i = 0; i < n && i < 100; i++) {
		lister_candidate(&alphabet, &pos, NULL, lesson.shared, i, &key);
		ensure(lister_key_cmp(key.bytes, key.len, pos.bytes, pos.len) > 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *xml = (const char *)data + 1;
	struct s3_error error;
	struct ufs_page page;

	if (size == 0)
		return 0;
	ufs_page_init(&page);
	if (s3_xml_list(xml, size - 1, data[0] & 1 ? "p/" : "", &page, NULL) == 0) {
		check_rows(page.objects, page.n_objects);
		check_rows(page.prefixes, page.n_prefixes);
		cut(&page);
	} else {
		ensure(page.n_objects == 0);
	}
	s3_xml_error(xml, size - 1, &error);
	ensure(strlen(error.code) < sizeof(error.code) &&
		strlen(error.message) < sizeof(error.message));
	ufs_page_release(&page);
	return 0;
}
