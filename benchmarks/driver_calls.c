// Times what processes ask of the NVIDIA driver: open, ioctl, mmap and close of /dev/nvidia*. benchmarks/driver_calls.py
// compiles and preloads it. A program that starts maps one file in the folder DRIVER_CALLS; its forks write into the same
// mapping, so nothing is lost when they are killed. The nodes of GPUs whose numbers are in HIDDEN_GPUS cannot be opened.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef NODES  // tests time calls of another node
#define NODES "/dev/nvidia"
#endif
enum { OPEN, IOCTL, MMAP, CLOSE };
enum { NONE, CONTROL = 1000, UVM = 2000, OTHER = 3000 };  // and for GPU n: n + 1
struct call { uint64_t begin, took; int32_t process; uint16_t kind; int16_t node; uint32_t code, more; };
struct header { uint64_t calls, processes; };
#define MOST (6u << 20)
#define DESCRIPTORS 4096

static int16_t nodes[DESCRIPTORS];
static struct header *head;
static struct call *calls;
static int32_t process;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void note(uint64_t begin, int kind, int node, uint32_t code, uint32_t more) {
    if (!head) return;
    uint64_t took = now() - begin, at = __sync_fetch_and_add(&head->calls, 1);
    if (at < MOST) calls[at] = (struct call){begin, took, process, kind, node, code, more};
}

static void forked(void) {
    if (head) process = __sync_add_and_fetch(&head->processes, 1);
}

static int node_of(const char *path) {
    if (!path || strncmp(path, NODES, sizeof NODES - 1)) return NONE;
    path += sizeof NODES - 1;
    if (!strncmp(path, "ctl", 3)) return CONTROL;
    if (!strncmp(path, "-uvm", 4)) return UVM;
    return *path >= '0' && *path <= '9' ? atoi(path) + 1 : OTHER;
}

static int is_hidden(int node) {
    const char *numbers = getenv("HIDDEN_GPUS");
    while (numbers && *numbers) {
        if (node == atoi(numbers) + 1) return 1;
        numbers = strchr(numbers, ',');
        numbers += numbers != NULL;
    }
    return 0;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(real))dlsym(RTLD_NEXT, #name)
#define OPENED(call) \
    int node = node_of(path); \
    if (node && is_hidden(node)) { errno = ENOENT; return -1; } \
    uint64_t begin = now(); \
    int fd = call; \
    if (node && fd >= 0 && fd < DESCRIPTORS) { nodes[fd] = node; note(begin, OPEN, node, 0, 0); } \
    return fd;
#define MODE mode_t mode; va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest)

int open(const char *path, int flags, ...) { MODE; REAL(open); OPENED(real(path, flags, mode)) }
int open64(const char *path, int flags, ...) { MODE; REAL(open64); OPENED(real(path, flags, mode)) }
int openat(int at, const char *path, int flags, ...) { MODE; REAL(openat); OPENED(real(at, path, flags, mode)) }
int openat64(int at, const char *path, int flags, ...) { MODE; REAL(openat64); OPENED(real(at, path, flags, mode)) }

extern int ioctl(int, unsigned long, ...);
int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *argument = va_arg(rest, void *);
    va_end(rest);
    REAL(ioctl);
    if (fd < 0 || fd >= DESCRIPTORS || !nodes[fd]) return real(fd, request, argument);
    uint64_t begin = now();
    int result = real(fd, request, argument), error = errno;
    uint32_t code = nodes[fd] == UVM ? request : request & 0xff, more = 0;
    if (argument && nodes[fd] != UVM) {  // RM_CONTROL has a command, RM_ALLOC a class
        if (code == 0x2a) more = ((uint32_t *)argument)[2];
        if (code == 0x2b) more = ((uint32_t *)argument)[3];
    }
    note(begin, IOCTL, nodes[fd], code, more);
    errno = error;
    return result;
}

#define MAPPED(name) \
    REAL(name); \
    if (fd < 0 || fd >= DESCRIPTORS || !nodes[fd]) return real(at, size, protection, flags, fd, offset); \
    uint64_t begin = now(); \
    void *mapped = real(at, size, protection, flags, fd, offset); \
    note(begin, MMAP, nodes[fd], 0, size >> 12); \
    return mapped;

void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset) { MAPPED(mmap) }
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t offset) { MAPPED(mmap64) }

int close(int fd) {
    REAL(close);
    if (fd < 0 || fd >= DESCRIPTORS || !nodes[fd]) return real(fd);
    int16_t node = nodes[fd];
    nodes[fd] = NONE;
    uint64_t begin = now();
    int result = real(fd);
    note(begin, CLOSE, node, 0, 0);
    return result;
}

__attribute__((constructor)) static void started(void) {
    const char *folder = getenv("DRIVER_CALLS");
    char path[4096];
    if (!folder) return;
    snprintf(path, sizeof path, "%s/%d-%llu", folder, (int)getpid(), (unsigned long long)now());
    int fd = syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) return;
    size_t size = sizeof *head + (size_t)MOST * sizeof *calls;  // sparse
    if (ftruncate(fd, size) == 0) {
        void *mapped = (void *)syscall(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (mapped != MAP_FAILED) {
            head = mapped;
            calls = (struct call *)(head + 1);
            pthread_atfork(NULL, NULL, forked);
        }
    }
    syscall(SYS_close, fd);
}
