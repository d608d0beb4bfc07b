/* tools/ctl/output.c - see output.h. */
#define _GNU_SOURCE
#include "tools/ctl/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/errmsg.h"
#include "tools/cli.h"

void ctl_print_json(const json_t *root)
{
    swn_cli_print_json(root, JSON_REAL_PRECISION(6));
}

/* The text is untrusted: a control character in it would end the line, or reach a terminal, and a spreadsheet runs a
 * cell that begins like a formula. */
static void print_text(const char *value)
{
    char *text = strdup(value);
    if (!text)
        return;
    swn_one_line(text);
    int quoted = strpbrk(text, ",\" '") != NULL, formula = *text && strchr("=+-@", *text) != NULL;
    if (quoted || formula)
        putchar('"');
    if (formula)
        putchar('\'');
    for (const char *p = text; *p; p++)
        printf("%s%c", *p == '"' ? "\"" : "", *p);
    if (quoted || formula)
        putchar('"');
    free(text);
}

static void print_value(const json_t *value)
{
    size_t i;
    json_t *element;
    if (json_is_string(value))
        print_text(json_string_value(value));
    else if (json_is_integer(value))
        printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        printf("%.9g", json_real_value(value));
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "true" : "false", stdout);
    json_array_foreach(value, i, element)
    {
        if (i)
            putchar(' ');
        print_value(element);
    }
}

void ctl_print_csv(const char *const *keys, size_t count, const json_t *rows)
{
    size_t row;
    json_t *object;
    for (size_t k = 0; k < count; k++)
        printf("%s%s", k ? "," : "", keys[k]);
    putchar('\n');
    json_array_foreach(rows, row, object)
    {
        for (size_t k = 0; k < count; k++) {
            if (k)
                putchar(',');
            print_value(json_object_get(object, keys[k]));
        }
        putchar('\n');
    }
}

void ctl_print_csv_row(const char *const *keys, size_t count, json_t *row)
{
    json_t *rows = json_pack("[O]", row);
    ctl_print_csv(keys, count, rows);
    json_decref(rows);
}
