/* The SPIR-V and GLSL as they are: capabilities, and what can be seen of barriers in the text. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/variants.h"

enum {
    OP_CAPABILITY = 17,
    CAPABILITY_SHADER = 1,
    CAPABILITY_FIRST_GROUP = 61, /* GroupNonUniform .. GroupNonUniformQuad */
    CAPABILITY_LAST_GROUP = 68,
};

/* F50, F54: nothing but Shader, and subgroup operations only in rows that say so. */
Test(shaders, F50_capabilities)
{
    uint32_t rows = 0;
    for (uint32_t i = 0; vkmha_variant_at(i); i++) {
        const vkmha_variant *variant = vkmha_variant_at(i);
        const bool may_group = strstr(variant->name, "_subgroup") != NULL;
        const size_t words = variant->code_bytes / 4;
        cr_assert(words > 5 && variant->code[0] == 0x07230203, "%s", variant->name);
        for (size_t at = 5; at < words; at += variant->code[at] >> 16) {
            cr_assert(variant->code[at] >> 16 > 0);
            if ((variant->code[at] & 0xffff) != OP_CAPABILITY) {
                continue;
            }
            const uint32_t capability = variant->code[at + 1];
            const bool is_group =
                capability >= CAPABILITY_FIRST_GROUP && capability <= CAPABILITY_LAST_GROUP;
            cr_assert(capability == CAPABILITY_SHADER || (is_group && may_group),
                      "%s declares capability %u", variant->name, capability);
        }
        cr_assert(!!(variant->needs & VKMHA_CAPABILITY_SUBGROUP) ==
                      (may_group && variant->kernel == VKMHA_KERNEL_ATTENTION),
                  "%s", variant->name);
        rows++;
    }
    cr_assert(rows >= 6);
}

Test(shaders, F53_push_constants)
{
    cr_assert(sizeof(vkmha_project_push) <= 128);
    cr_assert(sizeof(vkmha_attention_push) <= 128);
}

static char *read_shader(const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/shaders/%s.comp", VKMHA_TEST_SOURCE, name);
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    char *text = calloc(1, 1 << 20);
    const size_t length = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    cr_assert(length > 0);
    return text;
}

/*
 * F55: no return in a kernel that has a barrier. The text alone is looked at: a barrier in a branch that depends on the
 * invocation would not be seen.
 */
Test(shaders, F55_no_return_before_a_barrier)
{
    uint32_t with_barrier = 0;
    for (uint32_t i = 0; vkmha_variant_at(i); i++) {
        char *text = read_shader(vkmha_variant_at(i)->name);
        const char *body = strstr(text, "void main()");
        cr_assert(body);
        if (strstr(body, "barrier()")) {
            with_barrier++;
            cr_assert(!strstr(body, "return"), "%s returns where it has barriers",
                      vkmha_variant_at(i)->name);
        }
        free(text);
    }
    cr_assert(with_barrier >= 2);
}
