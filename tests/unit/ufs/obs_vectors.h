/*
 * What is published of OBS's own signature.
 *
 * OBS_TEXTS: every example of a StringToSign that Huawei's API reference has, of signatures in a header
 * (https://support.huaweicloud.com/intl/en-us/api-obs/obs_04_0010.html, tables 2 to 7, the text of
 * table 1 and the request below them) and in a URL (obs_04_0011.html, tables 3 and 4: the time at
 * which it expires stands where the date does). The secret keys of these examples are not published,
 * so that their signatures (ydH8ffpcbS6YpeOMcEZfn0wE90c=, 0Akylf43Bm3mD1bh2rM3dmVp1Bo=) cannot be
 * checked by anybody.
 *
 * OBS_SIGNATURES: the signature of a text is that of Amazon's version 2, HMAC-SHA1 in Base64. Its
 * examples come with their secret key:
 * https://docs.aws.amazon.com/AmazonS3/latest/userguide/RESTAuthentication.html
 *
 * X(name, method, md5, type, date, headers, resource, query, result)
 */
#pragma once

#define OBS_HEADERS(...)    \
	{                   \
		__VA_ARGS__ \
	}

#define OBS_TEXTS(X)                                                                            \
	X("table 2: an object is read", "GET", NULL, "", "Sat, 12 Oct 2015 08:12:38 GMT",       \
		OBS_HEADERS({ NULL, NULL }), "/bucket/object.txt", "",                          \
		"GET\n\n\nSat, 12 Oct 2015 08:12:38 GMT\n/bucket/object.txt")                   \
	X("table 3: keys with a token, x-obs-date", "PUT", NULL, "text/plain", "",              \
		OBS_HEADERS({ "x-obs-date", "Tue, 15 Oct 2015 07:20:09 GMT" },                  \
			{ "x-obs-security-token", "YwkaRTbdY8g7q...." }),                       \
		"/bucket/object.txt", "",                                                       \
		"PUT\n\ntext/plain\n\nx-obs-date:Tue, 15 Oct 2015 07:20:09 GMT\n"               \
		"x-obs-security-token:YwkaRTbdY8g7q....\n/bucket/object.txt")                   \
	X("table 3, and a Date, which does not count", "PUT", NULL, "text/plain",               \
		"Tue, 15 Oct 2015 07:20:10 GMT",                                                \
		OBS_HEADERS({ "x-obs-date", "Tue, 15 Oct 2015 07:20:09 GMT" },                  \
			{ "x-obs-security-token", "YwkaRTbdY8g7q...." }),                       \
		"/bucket/object.txt", "",                                                       \
		"PUT\n\ntext/plain\n\nx-obs-date:Tue, 15 Oct 2015 07:20:09 GMT\n"               \
		"x-obs-security-token:YwkaRTbdY8g7q....\n/bucket/object.txt")                   \
	X("table 4: a header", "PUT", NULL, "text/plain", "Mon, 14 Oct 2015 12:08:34 GMT",      \
		OBS_HEADERS({ "x-obs-acl", "public-read" }), "/bucket/object.txt", "",          \
		"PUT\n\ntext/plain\nMon, 14 Oct 2015 12:08:34 GMT\nx-obs-acl:public-read\n"     \
		"/bucket/object.txt")                                                           \
	X("table 5: a sub-resource", "GET", NULL, "", "Sat, 12 Oct 2015 08:12:38 GMT",          \
		OBS_HEADERS({ NULL, NULL }), "/bucket/object.txt",                              \
		"acl=", "GET\n\n\nSat, 12 Oct 2015 08:12:38 GMT\n/bucket/object.txt?acl")       \
	X("table 6: Content-MD5", "PUT", "I5pU0r4+sgO9Emgl1KMQUg==", "", "",                    \
		OBS_HEADERS({ "x-obs-date", "Tue, 15 Oct 2015 07:20:09 GMT" }),                 \
		"/bucket/object.txt", "",                                                       \
		"PUT\nI5pU0r4+sgO9Emgl1KMQUg==\n\n\nx-obs-date:Tue, 15 Oct 2015 07:20:09 GMT\n" \
		"/bucket/object.txt")                                                           \
	X("table 7: a domain of one's own", "PUT", "I5pU0r4+sgO9Emgl1KMQUg==", "", "",          \
		OBS_HEADERS({ "x-obs-date", "Tue, 15 Oct 2015 07:20:09 GMT" }),                 \
		"/obs.ccc.com/object.txt", "",                                                  \
		"PUT\nI5pU0r4+sgO9Emgl1KMQUg==\n\n\nx-obs-date:Tue, 15 Oct 2015 07:20:09 GMT\n" \
		"/obs.ccc.com/object.txt")                                                      \
	X("table 1: several sub-resources, decoded", "GET", NULL, "", "D",                      \
		OBS_HEADERS({ NULL, NULL }), "/bucket-test/object-test",                        \
		"response-content-type=text%2Fplain&versionId=xxx",                             \
		"GET\n\n\nD\n/bucket-test/object-test?response-content-type=text/plain"         \
		"&versionId=xxx")                                                               \
	X("a bucket is made", "PUT", NULL, "", "Fri, 06 Jul 2018 03:45:51 GMT",                 \
		OBS_HEADERS({ "x-obs-acl", "private" }, { "x-obs-storage-class", "STANDARD" }), \
		"/newbucketname2/", "",                                                         \
		"PUT\n\n\nFri, 06 Jul 2018 03:45:51 GMT\nx-obs-acl:private\n"                   \
		"x-obs-storage-class:STANDARD\n/newbucketname2/")                               \
	X("URL, table 3", "GET", NULL, "", "1532779451", OBS_HEADERS({ NULL, NULL }),           \
		"/examplebucket/objectkey",                                                     \
		"AccessKeyId=MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc&Expires=1532779451",      \
		"GET\n\n\n1532779451\n/examplebucket/objectkey")                                \
	X("URL, table 4: a token", "GET", NULL, "", "1532779451", OBS_HEADERS({ NULL, NULL }),  \
		"/examplebucket/objectkey",                                                     \
		"AccessKeyId=MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc&Expires=1532779451"       \
		"&x-obs-security-token=YwkaRTbdY8g7q....",                                      \
		"GET\n\n\n1532779451\n/examplebucket/objectkey"                                 \
		"?x-obs-security-token=YwkaRTbdY8g7q....")

#define OBS_VECTOR_KEY    "AKIAIOSFODNN7EXAMPLE"
#define OBS_VECTOR_SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

#define OBS_SIGNATURES(X)                                                                          \
	X("Object GET", "GET", NULL, "", "Tue, 27 Mar 2007 19:36:42 +0000",                        \
		OBS_HEADERS({ NULL, NULL }), "/awsexamplebucket1/photos/puppy.jpg", "",            \
		"qgk2+6Sv9/oM7G3qLEjTH1a1l1g=")                                                    \
	X("Object PUT", "PUT", NULL, "image/jpeg", "Tue, 27 Mar 2007 21:15:45 +0000",              \
		OBS_HEADERS({ NULL, NULL }), "/awsexamplebucket1/photos/puppy.jpg", "",            \
		"iqRzw+ileNPu1fhspnRs8nOjjIA=")                                                    \
	X("List", "GET", NULL, "", "Tue, 27 Mar 2007 19:42:41 +0000", OBS_HEADERS({ NULL, NULL }), \
		"/awsexamplebucket1/", "prefix=photos&max-keys=50&marker=puppy",                   \
		"m0WP8eCtspQl5Ahe6L1SozdX9YA=")                                                    \
	X("Fetch", "GET", NULL, "", "Tue, 27 Mar 2007 19:44:46 +0000",                             \
		OBS_HEADERS({ NULL, NULL }), "/awsexamplebucket1/",                                \
		"acl=", "82ZHiFIjc+WbcwFKGUVEQspPn+0=")                                            \
	X("Delete", "DELETE", NULL, "", "Tue, 27 Mar 2007 21:20:26 +0000",                         \
		OBS_HEADERS({ NULL, NULL }), "/awsexamplebucket1/photos/puppy.jpg", "",            \
		"XbyTlbQdu9Xw5o8P4iMwPktxQd8=")                                                    \
	X("Upload", "PUT", "4gJE4saaMU4BqNR0kLY+lw==", "application/x-download",                   \
		"Tue, 27 Mar 2007 21:06:08 +0000",                                                 \
		OBS_HEADERS({ "x-amz-acl", "public-read" },                                        \
			{ "x-amz-meta-checksumalgorithm", "crc32" },                               \
			{ "x-amz-meta-filechecksum", "0x02661779" },                               \
			{ "x-amz-meta-reviewedby", "joe@example.com,jane@example.com" }),          \
		"/static.example.com/db-backup.dat.gz", "", "jtBQa0Aq+DkULFI8qrpwIjGEx0E=")        \
	X("List all my buckets", "GET", NULL, "", "Wed, 28 Mar 2007 01:29:59 +0000",               \
		OBS_HEADERS({ NULL, NULL }), "/", "", "qGdzdERIC03wnaRNKh6OqZehG9s=")              \
	X("Unicode keys", "GET", NULL, "", "Wed, 28 Mar 2007 01:49:49 +0000",                      \
		OBS_HEADERS({ NULL, NULL }), "/dictionary/fran%C3%A7ais/pr%c3%a9f%c3%a8re", "",    \
		"DNEZGsoieTZ92F3bUfSPQcbGmlM=")
