/* Manuals from option tables. See option_doc.h. */
#include "base/option_doc.h"
#include "base/exit.h"
#include "base/option_internal.h"
#include "base/version.h"

#include <ctype.h>
#include <string.h>

int option_doc_asked(const char *word, enum option_doc_form *ret_form)
{
	static const char *const words[] = {
		[OPTION_DOC_MAN] = "--help=man",
		[OPTION_DOC_KEYS] = "--help=keys",
		[OPTION_DOC_MARKDOWN] = "--help=markdown",
		[OPTION_DOC_JSON] = "--help=json",
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp(word, words[i]) == 0) {
			*ret_form = (enum option_doc_form)i;
			return 0;
		}
	return -EINVAL;
}

bool option_is_key(const struct option_spec *spec)
{
	return spec->kind != OPTION_FD && !spec->hidden && strcmp(spec->name, "config") != 0;
}

void option_environment_name(
	const struct option_set *set, const struct option_spec *spec, char *out, size_t size)
{
	(void)snprintf(out, size, "GRANARY_%s_%s", set->section, spec->name); /* short */
	for (char *c = out; *c; c++)
		*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

static bool takes_several(const struct option_spec *spec)
{
	return spec->kind == OPTION_LIST;
}

/* ---- man ------------------------------------------------------------------------------------- */

/* Text in roff: no line begins a request, no hyphen is broken at. */
static void roff(const char *text, size_t len, FILE *out)
{
	for (size_t i = 0; i < len; i++) {
		bool begins = i == 0 || text[i - 1] == '\n';

		if (begins && (text[i] == '.' || text[i] == '\''))
			(void)fputs("\\&", out);
		if (text[i] == '\\')
			(void)fputs("\\e", out);
		else if (text[i] == '-')
			(void)fputs("\\-", out);
		else
			(void)fputc(text[i], out);
	}
}

static void roff_text(const char *text, FILE *out)
{
	roff(text, strlen(text), out);
}

/* "cachectl mount" is cachectl-mount. */
static void page_name(const struct option_set *set, char *out, size_t size)
{
	(void)snprintf(out, size, "%s", set->program); /* short */
	for (char *c = out; *c; c++)
		if (*c == ' ')
			*c = '-';
}

/* The first sentence of what it does, without its full stop and in one line. */
static void summary(const struct option_set *set, FILE *out)
{
	const char *about = set->about ? set->about : set->program;
	char text[256];
	size_t n = 0;

	for (const char *c = about; *c && n < sizeof(text) - 1; c++) {
		if (*c == '.' && (c[1] == ' ' || c[1] == '\n' || !c[1]))
			break;
		text[n++] = *c == '\n' ? ' ' : *c;
	}
	roff(text, n, out);
}

static void man_option(const struct option_spec *spec, FILE *out)
{
	const char *meta = option_metavar(spec);

	(void)fputs(".TP\n", out);
	if (spec->letter)
		(void)fprintf(out, "\\fB\\-%c\\fR, ", spec->letter);
	(void)fputs("\\fB\\-\\-", out);
	roff_text(spec->name, out);
	(void)fputs("\\fR", out);
	if (*meta) {
		(void)fputs(" \\fI", out);
		roff_text(meta, out);
		(void)fputs("\\fR", out);
	}
	(void)fputc('\n', out);
	roff_text(spec->help, out);
	(void)fputs(spec->required ? " (required)" : "", out);
	(void)fputs(takes_several(spec) ? " (several times)" : "", out);
	(void)fputc('\n', out);
}

static void man_configuration(const struct option_set *set, FILE *out)
{
	(void)fprintf(out,
		".SH CONFIGURATION\n"
		"With \\fB\\-\\-config\\fR \\fIFILE\\fR (see \\fBgranary.yaml\\fR(5)) options are "
		"also keys of the section\n\\fB%s\\fR of FILE. An environment variable overrides "
		"the file, an option of the command line both.\nSIGHUP reads the file again; it "
		"changes the options that are marked below, the next start the rest.\n",
		set->section);
	for (unsigned int i = 0; i < set->n; i++) {
		const struct option_spec *spec = &set->specs[i];
		char name[96];
		char allowed[256];

		if (!option_is_key(spec))
			continue;
		option_environment_name(set, spec, name, sizeof(name));
		option_allowed(spec, allowed, sizeof(allowed));
		(void)fputs(".TP\n\\fB", out);
		roff_text(spec->name, out);
		(void)fprintf(out, "\\fR, \\fB%s\\fR\n", name);
		roff_text(allowed, out);
		(void)fprintf(out, "%s%s\n", takes_several(spec) ? ", or a list of them" : "",
			spec->reload ? "; changed by SIGHUP" : "");
	}
}

/* A daemon may end with any of them, but none is interrupted as a preload is. */
static bool ends_with(const struct option_set *set, int status)
{
	if (set->section)
		return status < EXIT_INTERRUPTED;
	for (size_t i = 0; i < OPTION_EXITS_MAX; i++)
		if (set->exits[i] == status)
			return true;
	return status <= EXIT_USAGE;
}

static void man_end(const struct option_set *set, FILE *out)
{
	static const struct {
		int number;
		const char *text;
	} exits[] = {
#define ROW(name, number, text) { name, text },
		EXIT_STATUSES(ROW)
#undef ROW
	};

	(void)fputs(".SH EXIT STATUS\n", out);
	for (size_t i = 0; i < ARRAY_SIZE(exits); i++)
		if (ends_with(set, exits[i].number))
			(void)fprintf(out, ".TP\n%d\n%s\n", exits[i].number, exits[i].text);
	(void)fputs(".SH SEE ALSO\n", out);
	if (strcmp(set->program, "cachectl") != 0)
		(void)fputs("\\fBcachectl\\fR(1), ", out);
	(void)fputs("\\fBcachemaster\\fR(8), \\fBcacheworker\\fR(8), \\fBcachefuse\\fR(8), "
		    "\\fBcachekeeper\\fR(8), \\fBgranary.yaml\\fR(5)\n",
		out);
}

static void doc_man(const struct option_set *set, FILE *out)
{
	char page[96];

	page_name(set, page, sizeof(page));
	(void)fprintf(out, ".TH \"%s\" \"%s\" \"\" \"Granary %s\" \"Granary\"\n.nh\n.SH NAME\n",
		page, set->section ? "8" : "1", GRANARY_VERSION);
	roff_text(page, out);
	(void)fputs(" \\- ", out);
	summary(set, out);
	(void)fputs("\n.SH SYNOPSIS\n\\fB", out);
	roff_text(set->program, out);
	(void)fputs("\\fR [\\fIOPTION\\fR...] ", out);
	roff_text(set->arguments, out);
	(void)fputc('\n', out);
	if (set->about) {
		(void)fputs(".SH DESCRIPTION\n", out);
		roff_text(set->about, out);
		(void)fputc('\n', out);
	}
	(void)fputs(".SH OPTIONS\n", out);
	for (unsigned int i = 0; i < set->n; i++)
		if (!set->specs[i].hidden)
			man_option(&set->specs[i], out);
	(void)fputs(".TP\n\\fB\\-\\-help\\fR\nPrint the options and exit\n", out);
	if (set->section)
		man_configuration(set, out);
	man_end(set, out);
}

static void doc_keys(const struct option_set *set, FILE *out)
{
	(void)fprintf(
		out, ".SH %s\nKeys of ", set->section ? set->section : ""); /* man(1) shouts */
	(void)fprintf(out, "\\fB%s\\fR(8).\n", set->program);
	for (unsigned int i = 0; i < set->n; i++) {
		const struct option_spec *spec = &set->specs[i];
		char allowed[256];

		if (!option_is_key(spec))
			continue;
		option_allowed(spec, allowed, sizeof(allowed));
		(void)fputs(".TP\n\\fB", out);
		roff_text(spec->name, out);
		(void)fputs("\\fR\n", out);
		roff_text(spec->help, out);
		(void)fprintf(out, "%s.\nAllowed: ", spec->required ? " (required)" : "");
		roff_text(allowed, out);
		(void)fprintf(out, "%s%s.\n", takes_several(spec) ? ", or a list of them" : "",
			spec->reload ? "; SIGHUP changes it" : "");
	}
}

/* ---- markdown -------------------------------------------------------------------------------- */

/* A cell: a bar would end it. */
static void cell(const char *text, FILE *out)
{
	for (; *text; text++)
		(void)fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
}

static void doc_markdown(const struct option_set *set, FILE *out)
{
	(void)fprintf(out, "| key of `%s` | allowed | SIGHUP | meaning |\n|---|---|---|---|\n",
		set->section ? set->section : "");
	for (unsigned int i = 0; i < set->n; i++) {
		const struct option_spec *spec = &set->specs[i];
		char allowed[256];

		if (!option_is_key(spec))
			continue;
		option_allowed(spec, allowed, sizeof(allowed));
		(void)fprintf(out, "| `%s` | ", spec->name);
		cell(allowed, out);
		(void)fprintf(out, "%s | %s | ", takes_several(spec) ? ", or a list of them" : "",
			spec->reload ? "yes" : "");
		cell(spec->help, out);
		(void)fprintf(out, "%s |\n", spec->required ? " (required)" : "");
	}
}

/* ---- json ------------------------------------------------------------------------------------ */

static void json_text(const char *text, FILE *out)
{
	(void)fputc('"', out);
	for (; *text; text++)
		if (*text == '"' || *text == '\\')
			(void)fprintf(out, "\\%c", *text);
		else if (*text == '\n')
			(void)fputs("\\n", out);
		else
			(void)fputc(*text, out);
	(void)fputc('"', out);
}

static void json_pair(const char *name, const char *text, FILE *out)
{
	(void)fprintf(out, "\"%s\": ", name);
	json_text(text ? text : "", out);
}

static void doc_json(const struct option_set *set, FILE *out)
{
	static const char *const kinds[] = { "text", "choice", "size", "rate", "duration", "number",
		"octal", "descriptor", "bool", "list" };

	(void)fputc('{', out);
	json_pair("program", set->program, out);
	(void)fputs(", ", out);
	json_pair("arguments", set->arguments, out);
	(void)fputs(", ", out);
	json_pair("about", set->about, out);
	(void)fputs(", ", out);
	json_pair("section", set->section, out);
	(void)fputs(", \"options\": [", out);
	for (unsigned int i = 0; i < set->n; i++) {
		const struct option_spec *spec = &set->specs[i];
		const char letter[] = { spec->letter, '\0' };

		(void)fputs(i ? ",\n  {" : "\n  {", out);
		json_pair("name", spec->name, out);
		(void)fputs(", ", out);
		json_pair("letter", letter, out);
		(void)fputs(", ", out);
		json_pair("kind", kinds[spec->kind], out);
		(void)fputs(", ", out);
		json_pair("metavar", option_metavar(spec), out);
		(void)fputs(", ", out);
		json_pair("help", spec->help, out);
		(void)fprintf(out,
			", \"required\": %s, \"hidden\": %s, \"key\": %s, \"reload\": %s}",
			spec->required ? "true" : "false", spec->hidden ? "true" : "false",
			set->section && option_is_key(spec) ? "true" : "false",
			spec->reload ? "true" : "false");
	}
	(void)fputs("\n], \"exits\": [0", out);
	for (int status = 1; status <= EXIT_INTERRUPTED; status++)
		if (ends_with(set, status) && !(set->section && status > EXIT_BUSY))
			(void)fprintf(out, ", %d", status);
	(void)fputs("]}\n", out);
}

void option_doc(const struct option_set *set, enum option_doc_form form, FILE *out)
{
	switch (form) {
	case OPTION_DOC_MAN:
		doc_man(set, out);
		return;
	case OPTION_DOC_KEYS:
		doc_keys(set, out);
		return;
	case OPTION_DOC_MARKDOWN:
		doc_markdown(set, out);
		return;
	case OPTION_DOC_JSON:
		doc_json(set, out);
		return;
	}
}
