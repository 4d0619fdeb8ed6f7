/* LIST answers and errors of S3: right ones, odd ones, broken ones. */
#include "ufs/s3_tag.h"
#include "ufs/s3_xml.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define HEAD                                                           \
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult " \
	"xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define TAIL "</ListBucketResult>"
#define URL  "<EncodingType>url</EncodingType>"
#define DONE "<IsTruncated>false</IsTruncated>"
#define TIME "<LastModified>2015-10-21T07:28:00.000Z</LastModified>"
#define OBJECT(key, size, etag)                                                \
	"<Contents><Key>" key "</Key>" TIME "<ETag>" etag "</ETag><Size>" size \
	"</Size><StorageClass>STANDARD</StorageClass><Owner><ID>x</ID></Owner></Contents>"

static int parse(const char *xml, const char *prefix, struct ufs_page *page)
{
	struct err e = ERR_INIT;
	int r = s3_xml_list(xml, strlen(xml), prefix, page, &e);

	assert_true((r == 0) == (e.text[0] == '\0'));
	return r;
}

static void expect_object(
	const struct ufs_object *o, const char *key, uint64_t size, const char *tag)
{
	assert_int_equal(o->key_len, strlen(key));
	assert_memory_equal(o->key, key, o->key_len);
	assert_int_equal(o->size, size);
	assert_int_equal(o->tag_len, strlen(tag));
	assert_memory_equal(o->tag, tag, o->tag_len);
}

static void page_of_objects(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(
		parse(HEAD "<Name>b</Name><Prefix>p/</Prefix>" URL
			   "<KeyCount>4</KeyCount><IsTruncated>true</IsTruncated>" OBJECT(
				   "p/", "0", "&quot;d41d8cd98f00b204e9800998ecf8427e&quot;")
				   OBJECT("p/a+b%2Bc%25", "1", "\"e-2\"")
					   OBJECT("p/a/b", "12345678901", "W/\"x\"")
						   OBJECT("p/%C3%BC%0A", "7", "bare") TAIL,
			"p/", &page),
		0);
	assert_true(page.truncated);
	assert_int_equal(page.n_objects, 4);
	expect_object(&page.objects[0], "", 0, "d41d8cd98f00b204e9800998ecf8427e");
	expect_object(&page.objects[1], "a b+c%", 1, "e-2");
	expect_object(&page.objects[2], "a/b", 12345678901, "W/\"x\"");
	expect_object(&page.objects[3], "\xc3\xbc\n", 7, "bare");
	assert_int_equal(page.objects[0].mtime_ns, 1445412480000000000);
	ufs_page_release(&page);
}

/* Without EncodingType nothing is decoded; behind the keys it counts too. */
static void encoding(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(parse(HEAD DONE OBJECT("a+b%20", "1", "e") TAIL, "", &page), 0);
	expect_object(&page.objects[0], "a+b%20", 1, "e");
	assert_int_equal(parse(HEAD DONE OBJECT("a+b%20", "1", "e") URL TAIL, "", &page), 0);
	expect_object(&page.objects[0], "a b ", 1, "e");
	assert_int_equal(
		parse(HEAD DONE OBJECT("&lt;&amp;&gt;&#x41;", "1", "e") TAIL, "", &page), 0);
	expect_object(&page.objects[0], "<&>A", 1, "e");
	ufs_page_release(&page);
}

static void common_prefixes(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(
		parse(HEAD URL DONE OBJECT("p/x", "1",
			      "e") "<CommonPrefixes><Prefix>p/a%2F</Prefix></CommonPrefixes>"
				   "<CommonPrefixes><Prefix>p/b/</Prefix></CommonPrefixes>" TAIL,
			"p/", &page),
		0);
	assert_int_equal(page.n_objects, 1);
	assert_int_equal(page.n_prefixes, 2);
	assert_memory_equal(page.prefixes[0].key, "a/", 2);
	assert_memory_equal(page.prefixes[1].key, "b/", 2);
	ufs_page_release(&page);
}

static void no_etag(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(
		parse(HEAD DONE "<Contents><Key>k</Key>" TIME "<Size>3</Size></Contents>" TAIL, "",
			&page),
		0);
	expect_object(&page.objects[0], "k", 3, "lm:1445412480");
	ufs_page_release(&page);
}

static void refused(void **state)
{
	static const char *const cases[] = {
		"",
		"   ",
		"not xml",
		"<Error/>",
		"<Error/><Code>x</Code>",
		"<html><body>please log in</body></html>",
		HEAD,
		HEAD DONE,
		HEAD DONE OBJECT("a", "1", "e"),
		HEAD OBJECT("a", "1", "e") TAIL, /* no IsTruncated */
		HEAD "<IsTruncated/>" TAIL,
		HEAD "<IsTruncated>yes</IsTruncated>" TAIL,
		HEAD "<IsTruncated>truefalse</IsTruncated>" TAIL,
		HEAD DONE OBJECT("a", "-1", "e") TAIL,
		HEAD DONE OBJECT("a", "", "e") TAIL,
		HEAD DONE OBJECT("a", "1x", "e") TAIL,
		HEAD DONE OBJECT("a", "99999999999999999999", "e") TAIL,
		HEAD DONE OBJECT("", "1", "e") TAIL,
		HEAD URL DONE OBJECT("a%", "1", "e") TAIL,
		HEAD URL DONE OBJECT("a%2", "1", "e") TAIL,
		HEAD URL DONE OBJECT("a%zz", "1", "e") TAIL,
		HEAD DONE "<Contents><Key>a</Key></Contents>" TAIL,
		HEAD DONE "<Contents><Key>a</Key><Size>1</Size></Contents>" TAIL,
		HEAD DONE "<Contents><Key>a</Key><LastModified>soon</LastModified><Size>1</Size></"
			  "Contents>" TAIL,
		HEAD DONE "<a><a><a><a><a><a><a><a><a/></a></a></a></a></a></a></a></a>" TAIL,
		"<!DOCTYPE a [<!ENTITY b \"c\">]>" HEAD DONE TAIL,
		HEAD DONE TAIL "<more/>",
	};
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		if (parse(cases[i], "", &page) != -EPROTO)
			fail_msg("accepted: %s", cases[i]);
		assert_int_equal(page.n_objects, 0);
	}
	assert_int_equal(parse(HEAD DONE OBJECT("q/a", "1", "e") TAIL, "p/", &page), -EPROTO);
	ufs_page_release(&page);
}

/* Out of order is said; of a key that comes twice the newest counts; the token is taken. */
static void disorder(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(parse(HEAD DONE OBJECT("a", "1", "e") OBJECT("a", "2", "f")
					 OBJECT("b", "3", "g") TAIL,
				 "", &page),
		0);
	assert_false(page.disorder);
	assert_int_equal(page.n_objects, 2);
	assert_int_equal(page.objects[0].size, 2);
	assert_memory_equal(page.objects[0].tag, "f", 1);
	assert_int_equal(page.token.len, 0);
	assert_int_equal(
		parse(HEAD DONE OBJECT("a", "1",
			      "e") "<Contents><Key>a</Key><LastModified>"
				   "2001-01-01T00:00:00.000Z</LastModified><ETag>old</ETag>"
				   "<Size>2</Size></Contents>" TAIL,
			"", &page),
		0);
	assert_int_equal(page.n_objects, 1);
	assert_int_equal(page.objects[0].size, 1); /* the second is older */
	assert_int_equal(parse(HEAD "<IsTruncated>true</IsTruncated><NextContinuationToken>1&amp;=/"
				    "</NextContinuationToken>" OBJECT("b", "1", "e")
					    OBJECT("a", "1", "e") TAIL,
				 "", &page),
		0);
	assert_true(page.disorder);
	assert_int_equal(page.n_objects, 2);
	assert_string_equal(buf_str(&page.token), "1&=/");
	assert_int_equal(parse(HEAD DONE TAIL, "", &page), 0);
	assert_false(page.disorder);
	assert_int_equal(page.token.len, 0);
	ufs_page_release(&page);
}

/* No further than the first key beyond the last that is wanted. */
static void upto(void **state)
{
	static const char xml[] = HEAD OBJECT("p/a", "1", "e") OBJECT("p/b", "2", "f")
		OBJECT("p/c", "3", "g") OBJECT("p/d", "many", "h") DONE TAIL;
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	for (size_t len = sizeof(xml) - 1; len > sizeof(xml) - 60; len -= 20) {
		assert_int_equal(s3_xml_list_upto(xml, len, "p/", "bb", 2, &page, NULL), 0);
		assert_int_equal(page.n_objects, 3);
		assert_memory_equal(page.objects[2].key, "c", 1);
		assert_true(page.truncated);
	}
	assert_int_equal(
		s3_xml_list_upto(xml, sizeof(xml) - 1, "p/", "c", 1, &page, NULL), -EPROTO);
	ufs_page_release(&page);
}

/* A page in disorder may begin with a key beyond: those of the range behind it are not lost. */
static void upto_in_disorder(void **state)
{
	static const char plain[] = HEAD OBJECT("p/d", "1", "e") OBJECT("p/x", "1", "e")
		OBJECT("p/b", "2", "f") DONE TAIL;
	static const char encoded[] = HEAD "<EncodingType>url</EncodingType>" OBJECT(
		"p%2Fd", "1", "e") OBJECT("p%2F%62", "2", "f") DONE TAIL;
	static const char entity[] =
		HEAD OBJECT("p/d", "1", "e") OBJECT("p/&amp;", "2", "f") DONE TAIL;
	static const char beyond[] = HEAD "<EncodingType>url</EncodingType>" OBJECT("p%2Fd", "1",
		"e") OBJECT("p%2F%C3%A9", "many", "f") OBJECT("p/bb+", "many", "f") DONE TAIL;
	static const char *const found[] = { plain, encoded, entity };
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	for (size_t i = 0; i < ARRAY_SIZE(found); i++) {
		assert_int_equal(
			s3_xml_list_upto(found[i], strlen(found[i]), "p/", "bb", 2, &page, NULL),
			0);
		assert_int_equal(page.n_objects, i == 0 ? 3 : 2);
		assert_true(page.disorder);
		assert_false(page.truncated);
	}
	assert_int_equal(
		s3_xml_list_upto(beyond, sizeof(beyond) - 1, "p/", "bb", 2, &page, NULL), 0);
	assert_int_equal(page.n_objects, 1);
	assert_false(page.disorder);
	ufs_page_release(&page);
}

/* As XML Schema and programming languages write it. */
static void booleans(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(parse(HEAD "<IsTruncated>True</IsTruncated>" TAIL, "", &page), 0);
	assert_true(page.truncated);
	assert_int_equal(parse(HEAD "<IsTruncated>1</IsTruncated>" TAIL, "", &page), 0);
	assert_true(page.truncated);
	assert_int_equal(parse(HEAD "<IsTruncated>FALSE</IsTruncated>" TAIL, "", &page), 0);
	assert_false(page.truncated);
	assert_int_equal(parse(HEAD "<IsTruncated>0</IsTruncated>" TAIL, "", &page), 0);
	assert_false(page.truncated);
	ufs_page_release(&page);
}

/* Every way to cut a good answer short is noticed. */
static void truncated(void **state)
{
	const char *xml = HEAD URL DONE OBJECT("a", "1", "e") OBJECT("b", "2", "f") TAIL;
	struct ufs_page page;
	struct err e;

	(void)state;
	ufs_page_init(&page);
	for (size_t n = 0; n < strlen(xml); n++)
		assert_int_equal(s3_xml_list(xml, n, "", &page, &e), -EPROTO);
	ufs_page_release(&page);
}

static void long_keys(void **state)
{
	struct ufs_page page;
	struct buf xml = BUF_INIT(LIMIT_XML_BYTES + 100);

	(void)state;
	ufs_page_init(&page);
	for (size_t n = LIMIT_KEY_BYTES; n <= LIMIT_KEY_BYTES + 1; n++) {
		buf_clear(&xml);
		assert_int_equal(buf_puts(&xml, HEAD URL DONE "<Contents><Key>"), 0);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(buf_puts(&xml, "%C3"), 0);
		assert_int_equal(
			buf_puts(&xml, "</Key><Size>1</Size><ETag>e</ETag></Contents>" TAIL), 0);
		assert_int_equal(
			parse(buf_str(&xml), "", &page), n > LIMIT_KEY_BYTES ? -EPROTO : 0);
	}
	buf_clear(&xml);
	assert_int_equal(buf_reserve(&xml, LIMIT_XML_BYTES + 1), 0);
	memset(xml.data, ' ', LIMIT_XML_BYTES + 1);
	assert_int_equal(s3_xml_list(xml.data, LIMIT_XML_BYTES + 1, "", &page, NULL), -EPROTO);
	buf_release(&xml);
	ufs_page_release(&page);
}

/* A full page of 1,000, as servers send it. */
static void full_page(void **state)
{
	struct ufs_page page;
	struct buf xml = BUF_INIT(LIMIT_XML_BYTES);

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(buf_puts(&xml, HEAD URL DONE), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(
			buf_printf(&xml, OBJECT("dir/file%%20%06d", "%d", "&quot;%032d&quot;"), i,
				i, i),
			0);
	assert_int_equal(buf_puts(&xml, TAIL), 0);
	assert_int_equal(parse(buf_str(&xml), "dir/", &page), 0);
	assert_int_equal(page.n_objects, 1000);
	for (int i = 0; i < 1000; i++) {
		char key[32], tag[40];

		(void)snprintf(key, sizeof(key), "file %06d", i);
		(void)snprintf(tag, sizeof(tag), "%032d", i);
		expect_object(&page.objects[i], key, (uint64_t)i, tag);
	}
	buf_release(&xml);
	ufs_page_release(&page);
}

static void errors(void **state)
{
	const char *xml = "<?xml version=\"1.0\"?><Error><Code>PermanentRedirect</Code><Message>a "
			  "&amp; b</Message>"
			  "<Region>eu-west-1</Region><Nested><Code>no</Code></"
			  "Nested><ServerTime>x</ServerTime></Error>";
	struct s3_error out;

	(void)state;
	s3_xml_error(xml, strlen(xml), &out);
	assert_string_equal(out.code, "PermanentRedirect");
	assert_string_equal(out.message, "a & b");
	assert_string_equal(out.region, "eu-west-1");
	assert_string_equal(out.server_time, "x");
	for (size_t n = 0; n < strlen(xml); n++)
		s3_xml_error(xml, n, &out);
	s3_xml_error("<html>", 6, &out);
	assert_string_equal(out.code, "");
}

#define VERSION(name, key, id, latest)                                               \
	"<" name "><Key>" key "</Key><VersionId>" id "</VersionId><IsLatest>" latest \
	"</IsLatest>" TIME "<ETag>&quot;e&quot;</ETag><Size>3</Size></" name ">"

/* The newest that was not removed counts, and its id stands in its tag. */
static void versions(void **state)
{
	const char *xml =
		"<ListVersionsResult><Name>b</Name><EncodingType>url</EncodingType>"
		"<IsTruncated>true</IsTruncated><NextKeyMarker>p%2Fz%20</NextKeyMarker>"
		"<NextVersionIdMarker>id.9</NextVersionIdMarker>" VERSION(
			"Version", "p/a", "id.2_~-", "true") VERSION("Version", "p/a", "id.1",
			"false") VERSION("DeleteMarker", "p/b", "id.4", "true") VERSION("Version",
			"p/b", "id.3", "false") VERSION("Version", "p/old", "null", "true")
			VERSION("Version", "p/odd", "a:b/c",
				"true") "<CommonPrefixes><Prefix>p/d/</Prefix></CommonPrefixes>"
					"</ListVersionsResult>";
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(parse(xml, "p/", &page), 0);
	assert_int_equal(page.n_objects, 3);
	expect_object(&page.objects[0], "a", 3, "v:id.2_~-:e");
	expect_object(&page.objects[1], "old", 3, "e"); /* of before there were versions */
	expect_object(&page.objects[2], "odd", 3, "e"); /* no id that we can ask for */
	assert_int_equal(page.n_prefixes, 1);
	assert_string_equal(buf_str(&page.token), "id.9\np/z ");
	ufs_page_release(&page);
}

static void expect_tag(const char *tag, const char *version, const char *etag)
{
	struct s3_tag t = s3_tag_of(tag, (uint32_t)strlen(tag));

	assert_int_equal(t.version_len, strlen(version));
	assert_memory_equal(t.version_len ? t.version : "", version, t.version_len);
	assert_int_equal(t.etag_len, strlen(etag));
	assert_memory_equal(t.etag, etag, t.etag_len);
}

static void tags(void **state)
{
	struct ufs_page page;

	(void)state;
	expect_tag("e-2", "", "e-2");
	expect_tag("v:1:e", "1", "e");
	expect_tag("v:1:lm:5", "1", "lm:5");
	expect_tag("v::v:x:y", "", "v:x:y");
	expect_tag("v:x", "", "v:x");
	expect_tag("", "", "");
	/* An etag that looks like one of ours is none. */
	ufs_page_init(&page);
	assert_int_equal(parse(HEAD DONE OBJECT("a", "1", "v:x:y") TAIL, "", &page), 0);
	expect_object(&page.objects[0], "a", 1, "v::v:x:y");
	ufs_page_release(&page);
}

#define CLASS(key, class, more)             \
	"<Contents><Key>" key "</Key>" TIME \
	"<ETag>e</ETag><Size>1</Size><StorageClass>" class "</StorageClass>" more "</Contents>"

static void archived(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(
		parse(HEAD DONE CLASS("a", "GLACIER", "") CLASS("b", "DEEP_ARCHIVE",
			      "<RestoreStatus><IsRestoreInProgress>true</IsRestoreInProgress>"
			      "</RestoreStatus>") CLASS("c", "GLACIER",
			      "<RestoreStatus><IsRestoreInProgress>false</IsRestoreInProgress>"
			      "<RestoreExpiryDate>2033-05-18T03:33:20Z</RestoreExpiryDate>"
			      "</RestoreStatus>") CLASS("d", "GLACIER_IR", "")
				CLASS("e", "COLD", "") CLASS("f", "STANDARD", "") TAIL,
			"", &page),
		0);
	assert_int_equal(page.n_objects, 6);
	assert_true(page.objects[0].archived);
	assert_true(page.objects[1].archived);
	assert_false(page.objects[2].archived);
	assert_false(page.objects[3].archived); /* which is read at once */
	assert_true(page.objects[4].archived);
	assert_false(page.objects[5].archived);
	ufs_page_release(&page);
}

/* Of the first version of LIST: a whole key. */
static void next_marker(void **state)
{
	struct ufs_page page;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(parse(HEAD URL "<IsTruncated>true</IsTruncated><NextMarker>p/%C3%BC"
					"</NextMarker>" OBJECT("p/a", "1", "e") TAIL,
				 "p/", &page),
		0);
	assert_string_equal(buf_str(&page.token), "p/\xc3\xbc");
	ufs_page_release(&page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(page_of_objects),
		cmocka_unit_test(encoding),
		cmocka_unit_test(common_prefixes),
		cmocka_unit_test(no_etag),
		cmocka_unit_test(refused),
		cmocka_unit_test(disorder),
		cmocka_unit_test(upto),
		cmocka_unit_test(upto_in_disorder),
		cmocka_unit_test(booleans),
		cmocka_unit_test(truncated),
		cmocka_unit_test(long_keys),
		cmocka_unit_test(full_page),
		cmocka_unit_test(errors),
		cmocka_unit_test(versions),
		cmocka_unit_test(tags),
		cmocka_unit_test(archived),
		cmocka_unit_test(next_marker),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
