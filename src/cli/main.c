#include "cli/cli.h"

int main(int argc, char **argv)
{
    return wf_cli_main(argc, argv);
}
