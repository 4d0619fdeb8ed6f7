/*
 * Announces files of a mount through libgranary, as a program of somebody else does:
 *
 *	announce MOUNT SEED EPOCH RANK WORLD FILE...
 *
 * DistributedSampler's epoch over the files, or with WORLD 0 the files as they are listed. Says
 * "announced", and keeps the order until its standard input ends.
 */
#include "client/granary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int announce(struct granary_order *order, char **argv, uint32_t n)
{
	struct granary_epoch epoch = {
		.seed = strtoull(argv[2], NULL, 10),
		.epoch = strtoull(argv[3], NULL, 10),
		.rank = (uint32_t)strtoul(argv[4], NULL, 10),
		.world = (uint32_t)strtoul(argv[5], NULL, 10),
		.shuffle = 1,
	};
	struct granary_sample *samples = calloc(n + 1, sizeof(*samples));
	uint32_t *numbers = calloc(n + 1, sizeof(*numbers));
	int r = -1;

	if (samples && numbers) {
		for (uint32_t i = 0; i < n; i++) {
			samples[i].path = argv[6 + i];
			numbers[i] = i;
		}
		r = granary_order_samples(order, samples, n);
	}
	if (r == 0)
		r = epoch.world ? granary_announce_epoch(order, &epoch)
				: granary_announce(order, numbers, n);
	free(samples);
	free(numbers);
	return r;
}

int main(int argc, char **argv)
{
	struct granary_order *order;
	int r;

	if (argc < 6) {
		(void)fprintf(stderr, "usage: announce MOUNT SEED EPOCH RANK WORLD FILE...\n");
		return 2;
	}
	r = granary_order_open(argv[1], &order);
	if (r < 0) {
		(void)fprintf(stderr, "announce: %s: %s\n", argv[1], strerror(-r));
		return 1;
	}
	r = announce(order, argv, (uint32_t)argc - 6);
	if (r < 0) {
		(void)fprintf(
			stderr, "announce: %s: %s\n", strerror(-r), granary_order_error(order));
	} else {
		(void)printf("announced, %llu unknown\n",
			(unsigned long long)granary_order_unknown(order));
		(void)fflush(stdout);
		while (getchar() != EOF)
			;
	}
	granary_order_close(order);
	return r < 0;
}
