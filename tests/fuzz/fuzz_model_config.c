/* fuzz_model_config - any bytes as a config.pbtxt. What is read keeps within the struct, and has a JSON form that the
 * scanner of requests takes. */
#include <stdlib.h>
#include <string.h>

#include "scheduler/json/json_scan.h"
#include "scheduler/config/model_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds)
{
    if (!holds)
        abort();
}

static void check_json(const struct swn_model_config *config)
{
    static struct swn_json json;
    enum swn_json_token token;
    size_t bytes = swn_model_config_json(config, NULL, 0);
    char *text = malloc(bytes);

    expect(text && swn_model_config_json(config, text, bytes) == bytes);
    swn_json_init(&json, text, bytes);
    do {
        token = swn_json_next(&json);
        expect(token != SWN_JSON_ERROR);
    } while (token != SWN_JSON_END);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct swn_model_config config;
    char why[SWN_ERRMSG] = "", *text = malloc(size ? size : 1);

    expect(text != NULL);
    if (size)
        memcpy(text, data, size);
    if (swn_model_config_parse(text, size, &config, why)) {
        expect(why[0] != '\0');
    } else {
        expect(config.input_count + config.output_count <= SWN_WIRE_TENSORS);
        expect(config.parameter_count <= SWN_CONFIG_PARAMETERS && config.versions.count <= SWN_CONFIG_LIST);
        expect(memchr(config.name, 0, sizeof config.name) && memchr(config.ignored, 0, sizeof config.ignored));
        check_json(&config);
        swn_model_config_free(&config);
    }
    free(text);
    return 0;
}
