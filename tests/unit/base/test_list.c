/* The linked list: order, unlinking, splicing. */
#include "base/list.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

struct item {
	struct list link;
	char name;
};

/* The names in order, also checked backwards. */
static const char *names(const struct list *head, char out[16])
{
	size_t n = 0;
	size_t back;

	list_for_each (node, head) {
		assert_true(n < 15);
		assert_ptr_equal(node->next->prev, node);
		out[n++] = list_entry(node, struct item, link)->name;
	}
	out[n] = '\0';
	back = n;
	for (const struct list *node = head->prev; node != head; node = node->prev) {
		assert_true(back > 0);
		assert_ptr_equal(node->prev->next, node);
		assert_int_equal(((const struct item *)(const void *)node)->name, out[--back]);
	}
	assert_int_equal(back, 0);
	return out;
}

static void order_is_kept(void **state)
{
	struct item a = { .name = 'a' };
	struct item b = { .name = 'b' };
	struct item c = { .name = 'c' };
	struct item d = { .name = 'd' };
	struct list head = LIST_INIT(head);
	char out[16];

	(void)state;
	assert_true(list_empty(&head));
	assert_null(list_pop_front(&head));
	list_push_back(&head, &b.link);
	list_push_back(&head, &d.link);
	list_push_front(&head, &a.link);
	list_insert_before(&d.link, &c.link);
	assert_false(list_empty(&head));
	assert_string_equal(names(&head, out), "abcd");

	list_remove(&b.link);
	assert_true(list_empty(&b.link)); /* points to itself */
	list_remove(&b.link);             /* and may be unlinked again */
	assert_string_equal(names(&head, out), "acd");
	assert_ptr_equal(list_pop_front(&head), &a.link);
	assert_true(list_empty(&a.link));
	list_remove(&d.link);
	assert_string_equal(names(&head, out), "c");
	assert_ptr_equal(list_pop_front(&head), &c.link);
	assert_true(list_empty(&head));
}

static void splicing_appends_all(void **state)
{
	struct item items[4] = { { .name = 'a' }, { .name = 'b' }, { .name = 'c' },
		{ .name = 'd' } };
	struct list to = LIST_INIT(to);
	struct list from = LIST_INIT(from);
	char out[16];

	(void)state;
	list_splice_back(&to, &from);
	assert_true(list_empty(&to));
	list_push_back(&from, &items[0].link);
	list_push_back(&from, &items[1].link);
	list_splice_back(&to, &from);
	assert_true(list_empty(&from));
	assert_string_equal(names(&to, out), "ab");
	list_splice_back(&to, &from);
	assert_string_equal(names(&to, out), "ab");
	list_push_back(&from, &items[2].link);
	list_push_back(&from, &items[3].link);
	list_splice_back(&to, &from);
	assert_true(list_empty(&from));
	assert_string_equal(names(&to, out), "abcd");
}

static void a_safe_walk_may_free(void **state)
{
	struct list head = LIST_INIT(head);
	char out[16];

	(void)state;
	for (int name = 'a'; name <= 'h'; name++) {
		struct item *item = calloc(1, sizeof(*item));

		assert_non_null(item);
		item->name = (char)name;
		list_push_back(&head, &item->link);
	}
	list_for_each_safe (node, &head) {
		struct item *item = list_entry(node, struct item, link);

		if (item->name % 2 == 0)
			continue;
		list_remove(node);
		free(item);
	}
	assert_string_equal(names(&head, out), "bdfh");
	list_for_each_safe (node, &head) {
		list_remove(node);
		free(list_entry(node, struct item, link));
	}
	assert_true(list_empty(&head));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_is_kept),
		cmocka_unit_test(splicing_appends_all),
		cmocka_unit_test(a_safe_walk_may_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
