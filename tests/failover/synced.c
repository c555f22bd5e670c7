/* Preloaded into a server: notes how much of each file is on disk, so that a test can cut off the rest.

   SYNCED names a directory, which gets a file for each inode, with the bytes that were in it when
   its last completed sync began. SYNC_US is what a sync of the disk takes at least. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void note(const struct stat *before)
{
    char path[4096], text[32];
    snprintf(path, sizeof path, "%s/%lu", getenv("SYNCED"), (unsigned long)before->st_ino);
    int length = snprintf(text, sizeof text, "%020lld", (long long)before->st_size);
    int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || pwrite(file, text, length, 0) != length)
        abort();
    close(file);
}

static int sync_by(const char *name, int descriptor)
{
    struct stat before;
    int (*sync)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int is_file = fstat(descriptor, &before) == 0 && S_ISREG(before.st_mode);
    usleep(atoi(getenv("SYNC_US")));
    int failed = sync(descriptor);
    if (is_file && !failed)
        note(&before);
    return failed;
}

int fdatasync(int descriptor) { return sync_by("fdatasync", descriptor); }

int fsync(int descriptor) { return sync_by("fsync", descriptor); }
