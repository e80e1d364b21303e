#include "words.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Words and marks between a start and an end token: what a tokenizer makes of plain words. */
static uint64_t split_words(vkmha_sentence *of)
{
    uint64_t count = 0;
    snprintf(of->words[count++], VKMHA_MAX_WORD, "[CLS]");
    const char *at = of->text;
    while (*at != '\0' && count + 1 < VKMHA_MAX_TOKENS) {
        if (isspace((unsigned char)*at)) {
            at++;
            continue;
        }
        size_t length = 0;
        while (isalnum((unsigned char)at[length])) {
            length++;
        }
        length = length > 0 ? length : 1;
        snprintf(of->words[count++], VKMHA_MAX_WORD, "%.*s", (int)length, at);
        at += length;
    }
    snprintf(of->words[count++], VKMHA_MAX_WORD, "[SEP]");
    return count;
}

static void copy_text(const char *list, uint64_t b, char *text, size_t size)
{
    static const char separator[] = " | ";
    for (uint64_t i = 0; list && i < b; i++) {
        const char *next = strstr(list, separator);
        list = next ? next + strlen(separator) : NULL;
    }
    const char *end = list ? strstr(list, separator) : NULL;
    const size_t length = !list ? 0 : end ? (size_t)(end - list) : strlen(list);
    snprintf(text, size, "%.*s", (int)length, list ? list : "");
}

void vkmha_sentence_read(const char *list, uint64_t b, uint64_t num_tokens,
                         vkmha_sentence *sentence)
{
    *sentence = (vkmha_sentence){.num_tokens = num_tokens};
    copy_text(list, b, sentence->text, sizeof(sentence->text));
    sentence->has_words = split_words(sentence) == num_tokens;
    for (uint64_t i = 0; !sentence->has_words && i < num_tokens && i < VKMHA_MAX_TOKENS; i++) {
        snprintf(sentence->words[i], VKMHA_MAX_WORD, "token %" PRIu64, i);
    }
}
