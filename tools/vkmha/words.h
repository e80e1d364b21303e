/* Tokens of a case's sentences, for labels. */
#ifndef VKMHA_TOOL_WORDS_H
#define VKMHA_TOOL_WORDS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    VKMHA_MAX_TOKENS = 128,
    VKMHA_MAX_WORD = 24,
};

typedef struct vkmha_sentence {
    uint64_t num_tokens;
    bool has_words; /* the words are the tokens; else "token 0", "token 1".. stand for them */
    char text[512];
    char words[VKMHA_MAX_TOKENS][VKMHA_MAX_WORD];
} vkmha_sentence;

/* Sentence b of the list, whose parts " | " separates; NULL, or past its end: no text. */
void vkmha_sentence_read(const char *list, uint64_t b, uint64_t num_tokens,
                         vkmha_sentence *sentence);

#endif
