/*
 * Fuzzer of LIST answers and errors of S3: no input may crash, and a page that is accepted is
 * sorted unless it says otherwise, within bounds and below the prefix. The first byte chooses the prefix.
 */
#include <stdlib.h>
#include <string.h>
#include "ufs/lister_split.h"
#include "ufs/s3_xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_rows(const struct ufs_object *rows, uint32_t n, bool sorted)
{
	for (uint32_t i = 0; i < n; i++) {
		ensure(rows[i].key_len <= LIMIT_KEY_BYTES && rows[i].tag_len <= LIMIT_TAG_BYTES);
		ensure(!sorted || i == 0 ||
			lister_key_cmp(rows[i - 1].key, rows[i - 1].key_len, rows[i].key,
				rows[i].key_len) < 0);
	}
}

static void check_cuts(const struct lister_alphabet *alphabet, const struct lister_spot *spot)
{
	static struct lister_key cuts[100];
	double keys = lister_estimate(alphabet, spot);
	uint32_t n = lister_cuts(alphabet, spot, ARRAY_SIZE(cuts), cuts);

	ensure(keys >= 0 && keys <= 1e18);
	ensure(n <= ARRAY_SIZE(cuts));
	for (uint32_t i = 0; i < n; i++) {
		const struct lister_key *cut = &cuts[i];

		ensure(cut->len <= LIMIT_KEY_BYTES);
		ensure(lister_key_cmp(cut->bytes, cut->len, spot->pos->bytes, spot->pos->len) > 0);
		ensure(!spot->high || lister_key_cmp(cut->bytes, cut->len, spot->high->bytes,
					      spot->high->len) < 0);
	}
}

/* What a listing does with a page: learning from it, and cutting behind it or inside. */
static void cut(const struct ufs_page *page)
{
	struct lister_alphabet alphabet = { .n = 0 };
	struct lister_lesson lesson;
	struct lister_key last;
	struct lister_key middle;
	struct lister_spot spot = { .pos = &last, .page_n = page->n_objects };
	const struct ufs_object *object;

	lister_learn(page->objects, page->n_objects, &lesson);
	lister_alphabet_add(&alphabet, &lesson.alphabet);
	if (page->n_objects == 0)
		return;
	object = &page->objects[page->n_objects - 1];
	lister_key_set(&last, object->key, object->key_len);
	spot.depth = lesson.shared;
	spot.keys = lesson.keys;
	check_cuts(&alphabet, &spot);
	if (page->n_objects < 3)
		return;
	object = &page->objects[page->n_objects / 2];
	lister_key_set(&middle, object->key, object->key_len);
	spot.pos = &middle;
	spot.high = &last;
	check_cuts(&alphabet, &spot);
	spot.floor = min(middle.len, 3u);
	check_cuts(&alphabet, &spot);
	spot.even = true;
	check_cuts(&alphabet, &spot);
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
		check_rows(page.objects, page.n_objects, !page.disorder);
		check_rows(page.prefixes, page.n_prefixes, !page.disorder);
		if (!page.disorder)
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
