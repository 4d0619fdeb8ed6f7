/* Error documents of S3, by expat. See s3_xml.h. */
#include "ufs/s3_xml.h"

#include <expat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct error_parser {
	XML_Parser xml;
	struct s3_error *out;
	unsigned int depth;
	char *field;
	size_t size;
};

static void XMLCALL error_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
	struct error_parser *p = arg;
	struct s3_error *o = p->out;
	const struct {
		const char *name;
		char *field;
		size_t size;
	} table[] = {
		{ "Code", o->code, sizeof(o->code) },
		{ "Message", o->message, sizeof(o->message) },
		{ "Region", o->region, sizeof(o->region) },
		{ "Endpoint", o->endpoint, sizeof(o->endpoint) },
		{ "RequestTime", o->request_time, sizeof(o->request_time) },
		{ "ServerTime", o->server_time, sizeof(o->server_time) },
		{ "StorageClass", o->storage_class, sizeof(o->storage_class) },
	};

	(void)attributes;
	p->field = NULL;
	if (p->depth++ != 1)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (strcmp(name, table[i].name) == 0) {
			p->field = table[i].field;
			p->size = table[i].size;
		}
}

static void XMLCALL error_text(void *arg, const XML_Char *s, int len)
{
	struct error_parser *p = arg;
	size_t at;
	size_t n;

	if (!p->field)
		return;
	at = strlen(p->field);
	n = min((size_t)len, p->size - 1 - at);
	memcpy(p->field + at, s, n);
	p->field[at + n] = '\0';
}

static void XMLCALL error_end(void *arg, const XML_Char *name)
{
	struct error_parser *p = arg;

	(void)name;
	p->field = NULL;
	p->depth--;
}

static void XMLCALL error_doctype(void *arg, const XML_Char *name, const XML_Char *system_id,
	const XML_Char *public_id, int internal)
{
	struct error_parser *p = arg;

	(void)name;
	(void)system_id;
	(void)public_id;
	(void)internal;
	(void)XML_StopParser(p->xml, XML_FALSE); /* cannot be stopped already */
}

void s3_xml_error(const char *xml, size_t len, struct s3_error *ret_error)
{
	struct error_parser p = { .out = ret_error };

	*ret_error = (struct s3_error){ 0 };
	if (len == 0 || len > LIMIT_XML_BYTES)
		return;
	p.xml = XML_ParserCreate(NULL);
	if (!p.xml)
		return;
	XML_SetUserData(p.xml, &p);
	XML_SetElementHandler(p.xml, error_start, error_end);
	XML_SetCharacterDataHandler(p.xml, error_text);
	XML_SetStartDoctypeDeclHandler(p.xml, error_doctype);
	(void)XML_Parse(
		p.xml, xml, (int)len, XML_TRUE); /* a broken document: what was found so far */
	XML_ParserFree(p.xml);
}
