/* See kube_token.h. */
#include "kube/kube_token.h"

#include <ctype.h>

int kube_token_check(const char *from, struct buf *text, struct err *e)
{
	while (text->len && isspace((unsigned char)text->data[text->len - 1]))
		text->data[--text->len] = '\0';
	if (text->len == 0)
		return err_set(e, -ENOKEY, "token in %s is empty: write a new one there", from);
	for (size_t i = 0; i < text->len; i++)
		if ((unsigned char)text->data[i] <= ' ' || (unsigned char)text->data[i] >= 0x7f)
			return err_set(e, -ENOKEY,
				"token in %s has a blank or a control character: write the token "
				"and nothing else there",
				from);
	return 0;
}
