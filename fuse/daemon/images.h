/*
 * The images that a node has built: a private directory of files, each with a small text file that
 * says what is in it.
 *
 *	DIR/KEY.GENERATION.erofs	the image
 *	DIR/KEY.GENERATION.info		its facts and its checksum; written last
 *
 * KEY is a hash of volume and options, GENERATION the first 16 digits of the generation's hash; of
 * several sources KEY is of all volumes and where they are shown, GENERATION of all generations.
 *
 * An image is built once and used again by every later mount of the same generation with the same
 * options. Written under another boot of the machine it is checked against its checksum before the
 * kernel sees it, since nothing was fsynced for sure.
 *
 * Threads and processes: any number; one at a time works in a directory, the others wait for it.
 */
#pragma once

#include <stdbool.h>
#include "catalog/catalog.h"

#define IMAGES_NAME_BYTES 64u
#define IMAGES_KEEP       8u /* images of one directory; the longest unused go first */

struct images_result {
	char name[IMAGES_NAME_BYTES]; /* file name in the directory */
	struct image_info info;
	bool reused;
};

/*
 * Makes sure that the image of the sources with `options` is in `dir` (created 0700 when missing;
 * refused with -EPERM when others may write there). Drops images of older generations of the same
 * source and options, which may be mounted: that keeps their bytes. `log_skipped` is called for the
 * first few keys that POSIX cannot name, when the image is built.
 */
int images_get(const char *dir, const struct image_source *sources, uint32_t n,
	const struct image_options *options, image_skip_fn log_skipped, void *skip_arg,
	struct images_result *ret, struct err *e) __must_check;
