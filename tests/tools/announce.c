/*
 * Announces files of a mount through libgranary, as a program of somebody else does:
 *
 *	announce MOUNT NUMBERS FILE...
 *
 * The files of these numbers, as "3,1,2", or with "-" all as they are listed. Prints "announced", keeps the order until its
 * standard input ends, and prints how many reads followed it. ANNOUNCE_MS in the environment is the deadline of its calls.
 */
#include "client/granary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t parse_numbers(char *text, uint32_t *numbers)
{
	uint32_t n = 0;
	char *rest = NULL;

	for (char *word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
		numbers[n++] = (uint32_t)strtoul(word, NULL, 10);
	return n;
}

static int announce(struct granary_order *order, char **argv, uint32_t n)
{
	struct granary_sample *samples = calloc(n + 1, sizeof(*samples));
	uint32_t *numbers = calloc(strlen(argv[2]) + 1, sizeof(*numbers));
	int r = -1;

	if (samples && numbers) {
		for (uint32_t i = 0; i < n; i++)
			samples[i].path = argv[3 + i];
		r = granary_order_samples(order, samples, n);
	}
	if (r == 0 && strcmp(argv[2], "-") == 0)
		r = granary_announce(order, NULL, 0);
	else if (r == 0)
		r = granary_announce(order, numbers, parse_numbers(argv[2], numbers));
	free(samples);
	free(numbers);
	return r;
}

static uint32_t deadline_ms(void)
{
	const char *text = getenv("ANNOUNCE_MS"); // NOLINT(concurrency-mt-unsafe): one thread

	return text ? (uint32_t)strtoul(text, NULL, 10) : 0;
}

/* Keeps the order. */
static int keep(struct granary_order *order)
{
	struct granary_hits hits;
	int r;

	(void)printf("announced, %llu unknown\n", (unsigned long long)granary_order_unknown(order));
	(void)fflush(stdout);
	while (getchar() != EOF)
		;
	r = granary_order_hits(order, &hits);
	if (r == 0)
		(void)printf("%llu reads, %llu hits%s\n", (unsigned long long)hits.reads,
			(unsigned long long)hits.hits, hits.suspended ? ", suspended" : "");
	return r;
}

int main(int argc, char **argv)
{
	struct granary_order *order;
	int r;

	if (argc < 3) {
		(void)fprintf(stderr, "usage: announce MOUNT NUMBERS FILE...\n");
		return 2;
	}
	r = granary_order_open(argv[1], deadline_ms(), &order);
	if (r < 0) {
		(void)fprintf(stderr, "announce: %s: %s\n", argv[1], strerror(-r));
		return 1;
	}
	r = announce(order, argv, (uint32_t)argc - 3);
	if (r == 0)
		r = keep(order);
	if (r < 0)
		(void)fprintf(
			stderr, "announce: %s: %s\n", strerror(-r), granary_order_error(order));
	granary_order_close(order);
	return r < 0;
}
