#include <vkmha/vkmha_files.h>

int main(void)
{
    vkmha_file *file = NULL;
    vkmha_error error;
    const vkmha_status status = vkmha_file_open("no such file", NULL, &file, &error);
    return status == VKMHA_ERROR_FILE && !file && error.message[0] ? 0 : 1;
}
