/* The command `vkmha`: finds the subcommand. */
#include "tool.h"

#include <string.h>

static const char usage[] =
    "usage: vkmha COMMAND [OPTION...]\n"
    "\n"
    "Multi-head attention on any Vulkan device, proven against a CPU reference.\n"
    "\n"
    "  info    the devices, their limits, the kernels that are usable and chosen\n"
    "  run     weights + input -> output\n"
    "  check   cases or random shapes: device against reference and expected values\n"
    "  bench   checks, then times each kernel\n"
    "  demo    one case with what it computes: times, errors, strongest attention\n"
    "  heads   what each head does: a table, attention maps as HTML or PNG\n"
    "  ablate  the importance of each head, and the output without heads\n"
    "  noise   a head full of noise: kept, weighed down, removed\n"
    "  prune   writes a checkpoint without heads, proves it and times it\n"
    "\n"
    "vkmha COMMAND --help tells about a command; vkmha --version about the library.\n"
    "Exit status: 0 right, 1 a check failed, 2 wrong use, 3 no usable device.\n"
    "\n"
    "example: vkmha check --grid --count 100\n";

static int run_command(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {
        {"info", vkmha_command_info},   {"run", vkmha_command_run},
        {"check", vkmha_command_check}, {"bench", vkmha_command_bench},
        {"demo", vkmha_command_demo},   {"ablate", vkmha_command_ablate},
        {"heads", vkmha_command_heads}, {"noise", vkmha_command_noise},
        {"prune", vkmha_command_prune},
    };
    if (argc < 2) {
        fputs(usage, stderr);
        return VKMHA_EXIT_MISUSE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(usage, stdout);
        return VKMHA_EXIT_RIGHT;
    }
    if (strcmp(argv[1], "--version") == 0) {
        const uint32_t version = vkmha_version();
        printf("vkmha %u.%u.%u\n", version / 1000000, version / 1000 % 1000, version % 1000);
        return VKMHA_EXIT_RIGHT;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(argv[1], commands[i].name) == 0) {
            return commands[i].run(argc - 1, argv + 1);
        }
    }
    return vkmha_tool_misuse("%s is no command; see vkmha --help", argv[1]);
}

int main(int argc, char **argv)
{
    const int code = run_command(argc, argv);
    /* What could not be printed must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return vkmha_tool_misuse("cannot write to standard output");
    }
    return code;
}
