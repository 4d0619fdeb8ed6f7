/*
 * The fields of a request to publish a volume, checked, as texts. Pure.
 *
 * Threads: any.
 */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <protobuf-c/protobuf-c.h>
#include "base/dataset_name.h"
#include "base/err.h"

#define VOLUME_ID_BYTES    1025u /* with the NUL, as all of these */
#define VOLUME_NAME_BYTES  254u  /* of a namespace, of a service account */
#define VOLUME_WORD_BYTES  32u   /* of engine and the like */
#define VOLUME_PATH_BYTES  1025u
#define VOLUME_TOKEN_BYTES 16385u

struct csi_volume {
	char id[VOLUME_ID_BYTES];
	char target[PATH_MAX];
	char dataset[DATASET_NAME_BYTES + 1];
	char generation[VOLUME_WORD_BYTES]; /* a number from 1 */
	char path[VOLUME_PATH_BYTES]; /* relative, without '.' and '..'; "": all of the dataset */
	char follow[VOLUME_WORD_BYTES];
	char order[VOLUME_WORD_BYTES];
	char engine[VOLUME_WORD_BYTES];
	char integrity[VOLUME_WORD_BYTES];
	char name_space[VOLUME_NAME_BYTES];
	char account[VOLUME_NAME_BYTES];
	char pod[VOLUME_NAME_BYTES];            /* its uid */
	char service_token[VOLUME_TOKEN_BYTES]; /* of its service account, for AUDIENCE; "": none */
	uint64_t
		token; /* not 0: the same for the same volume, target and attributes, whatever their order and the pod's tokens */
};

struct Csi__V1__NodePublishVolumeRequest;

/* -EINVAL with a line that names the field. */
int csi_volume_parse(const struct Csi__V1__NodePublishVolumeRequest *request,
	struct csi_volume *ret, struct err *e) __must_check;

/* "volume_id" and "target_path" of the other calls. -EINVAL with a line that names the field. */
int csi_volume_take_id(
	const ProtobufCBinaryData *field, char out[VOLUME_ID_BYTES], struct err *e) __must_check;
int csi_volume_take_path(const ProtobufCBinaryData *field, const char *name, char out[PATH_MAX],
	struct err *e) __must_check;
