/* The last notable things. See events.h. */
#include "master/events.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_DEFAULT 100u
#define LOOK_BACK    16u                  /* events that a new one is compared with */
#define SAID_ENOUGH  (300 * CLOCK_SECOND) /* before the same is kept again */
#define BURST        50u                  /* kept in a second */

struct event {
	uint64_t at_ns;  /* monotonic */
	int64_t time_ms; /* since 1970 */
	enum event_level level;
	char kind[EVENT_KIND_BYTES];
	char on[EVENT_ON_BYTES];
	char text[EVENT_TEXT_BYTES];
};

/* Number n is at ring[n % EVENTS_MAX]; numbers begin at 1. */
static struct {
	pthread_mutex_t lock; /* a leaf */
	struct event *ring;   /* NULL: nothing is kept */
	uint64_t last;
	uint64_t run; /* random */
	struct log_limit limit;
} events = { .lock = PTHREAD_MUTEX_INITIALIZER };

int events_open(void)
{
	struct event *ring = arena_calloc(ARENA_HISTORY, EVENTS_MAX, sizeof(*ring));

	if (!ring)
		return -ENOMEM;
	pthread_mutex_lock(&events.lock);
	events.ring = ring;
	events.last = 0;
	hash_random(&events.run, sizeof(events.run));
	events.run &= (1ull << 53) - 1; /* a number that every reader of JSON holds */
	pthread_mutex_unlock(&events.lock);
	return 0;
}

void events_close(void)
{
	struct event *ring;

	pthread_mutex_lock(&events.lock);
	ring = events.ring;
	events.ring = NULL;
	pthread_mutex_unlock(&events.lock);
	arena_free(ARENA_HISTORY, ring, EVENTS_MAX * sizeof(*ring));
}

/* ---- notes ----------------------------------------------------------------------------------- */

/* Takes off the bytes of a character that was cut. */
static void mend_end(char *text)
{
	size_t len = strlen(text);
	size_t at = len;

	while (at > 0 && ((unsigned char)text[at - 1] & 0xc0) == 0x80)
		at--;
	if (at > 0 && (unsigned char)text[at - 1] >= 0xc0) {
		unsigned char first = (unsigned char)text[at - 1];
		size_t want = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;

		if (len - (at - 1) < want)
			text[at - 1] = '\0';
	}
}

static bool is_said_locked(const struct event *event)
{
	for (uint64_t n = events.last; n > 0 && events.last - n < LOOK_BACK; n--) {
		const struct event *before = &events.ring[n % EVENTS_MAX];

		if (event->at_ns - before->at_ns < SAID_ENOUGH &&
			strcmp(event->kind, before->kind) == 0 &&
			strcmp(event->on, before->on) == 0 &&
			strcmp(event->text, before->text) == 0)
			return true;
	}
	return false;
}

void event_note(enum event_level level, const char *kind, const char *on, const char *fmt, ...)
{
	struct event event = { .at_ns = clock_mono_ns(),
		.time_ms = (int64_t)(clock_wall_ns() / CLOCK_MS),
		.level = level };
	uint32_t left_out;
	va_list ap;

	(void)snprintf(event.kind, sizeof(event.kind), "%s", kind);
	(void)snprintf(event.on, sizeof(event.on), "%s", on ? on : ""); /* cut, as the following */
	va_start(ap, fmt);
	(void)vsnprintf(event.text, sizeof(event.text), fmt, ap);
	va_end(ap);
	mend_end(event.on);
	mend_end(event.text);
	pthread_mutex_lock(&events.lock);
	if (events.ring && !is_said_locked(&event) &&
		log_limit_pass(&events.limit, BURST, &left_out))
		events.ring[++events.last % EVENTS_MAX] = event;
	pthread_mutex_unlock(&events.lock);
}

void event_audit(void *arg, const struct audit_act *act)
{
	const json_t *name = json_object_get(act->on, "name");
	static const char *const others[] = { "dataset", "id", "source", "url", "volume" };
	char number[24] = "";

	(void)arg;
	for (size_t i = 0; !name && i < ARRAY_SIZE(others); i++)
		name = json_object_get(act->on, others[i]);
	if (json_is_integer(name))
		(void)snprintf(
			number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(name));
	event_note(act->code < 0 ? EVENT_WARN : EVENT_INFO, act->act,
		json_is_string(name) ? json_string_value(name) : number, "%s%s%s",
		act->code < 0 ? err_name(act->code) : "ok", act->text && act->text[0] ? ": " : "",
		act->text ? act->text : "");
}

/* ---- for people ------------------------------------------------------------------------------ */

static json_t *event_json(uint64_t seq, const struct event *event)
{
	static const char *const levels[] = { "info", "warn", "error" };

	return json_pack("{s:I, s:o, s:s, s:o, s:o, s:o}", "seq", (json_int_t)seq, "time",
		admin_json_time(event->time_ms * (int64_t)CLOCK_MS), "level", levels[event->level],
		"kind", admin_json_string(event->kind), "on", admin_json_string(event->on), "text",
		admin_json_string(event->text));
}

/* Those after number `after` (UINT64_MAX: the last `limit`), at most `limit`; what there is of the
 * list is in the answer. */
struct page {
	uint64_t after;
	uint64_t limit;
	uint64_t first; /* that is kept */
	uint64_t last;
	uint64_t run;
};

static void take_page(struct page *page, struct event copy[EVENTS_MAX])
{
	pthread_mutex_lock(&events.lock);
	page->last = events.ring ? events.last : 0;
	page->first = page->last >= EVENTS_MAX ? page->last - EVENTS_MAX + 1 : 1;
	page->run = events.run;
	page->limit = min(page->limit, (uint64_t)EVENTS_MAX);
	if (page->after == UINT64_MAX)
		page->after = page->last > page->limit ? page->last - page->limit : 0;
	page->after = max(min(page->after, page->last), page->first - 1);
	page->limit = min(page->limit, page->last - page->after);
	for (uint64_t n = 0; n < page->limit; n++)
		copy[n] = events.ring[(page->after + 1 + n) % EVENTS_MAX];
	pthread_mutex_unlock(&events.lock);
}

int events_api_list(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	uint64_t failures = admin_json_failures();
	struct page page = { 0 };
	struct event *copy;
	json_t *list;
	int r = admin_query_number(request, "after", UINT64_MAX, &page.after, e);

	(void)arg;
	if (r == 0)
		r = admin_query_number(request, "limit", PAGE_DEFAULT, &page.limit, e);
	if (r < 0)
		return r;
	copy = calloc(EVENTS_MAX, sizeof(*copy));
	if (!copy)
		return err_set(e, -ENOMEM, "out of memory");
	take_page(&page, copy);
	list = json_array();
	for (uint64_t n = 0; n < page.limit; n++)
		(void)json_array_append_new(
			list, event_json(page.after + 1 + n, &copy[n])); /* counted */
	free(copy);
	*ret_json = json_pack("{s:I, s:I, s:I, s:o}", "run", (json_int_t)page.run, "first",
		(json_int_t)page.first, "last", (json_int_t)page.last, "events", list);
	if (admin_json_failures() == failures)
		return 0;
	json_decref(*ret_json);
	*ret_json = NULL;
	return err_set(e, -ENOMEM, "out of memory");
}
