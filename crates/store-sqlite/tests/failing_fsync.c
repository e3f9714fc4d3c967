/* Purpose: lets fsync and fdatasync fail with EIO while the file named by PLIMSOLL_FSYNC_FAILS
 * exists. The test compiles it and puts it before the C library of a child. */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(void) {
    const char *trigger = getenv("PLIMSOLL_FSYNC_FAILS");
    return trigger && access(trigger, F_OK) == 0;
}

static int sync_or_fail(long call, int file) {
    if (fails()) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, file);
}

int fsync(int file) { return sync_or_fail(SYS_fsync, file); }

int fdatasync(int file) { return sync_or_fail(SYS_fdatasync, file); }
