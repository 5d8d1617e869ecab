// The first code of every program of a bundle: loads the bundle's own dynamic
// loader, whose path is relative to the program, and jumps to it.
//
// The kernel takes the path of a loader from a program's header PT_INTERP, and
// the path must be absolute: a folder that is unpacked anywhere has none. The
// ways around it cost more than this file:
//   a script that runs "lib/ld-linux.so PROGRAM": /proc/self/exe is the loader,
//     and the command line is another than the one that was asked for; the
//     gateway starts /proc/self/exe again, and the launcher finds processes by
//     their command lines
//   a path that is written into the programs when they are unpacked: the folder
//     cannot be moved, and who uses it must be able to write to it
//   LD_LIBRARY_PATH: the host's own programs, which the launcher runs (ssh),
//     would load the bundle's libraries
// Here the program stays the program: its name, its command line and
// /proc/self/exe are its own, and its environment is as it was given.
//
// add_start.py puts this code at the end of a program and makes the code its
// entry. The header PT_INTERP is hidden from the kernel; the loader gets a table
// of headers with it. The code has no data that is written, calls no library and
// runs once, before the loader.
#include <elf.h>
#include <stdint.h>

#if defined(__x86_64__)
enum { kRead = 17, kOpen = 257, kReadLink = 267, kMap = 9, kWrite = 1,
       kClose = 3, kExit = 231 };
__asm__(".section .start,\"ax\"\n"
        "  xor %ebp, %ebp\n"
        "  mov %rsp, %rdi\n"
        "  mov %rsp, %rbx\n"
        "  and $-16, %rsp\n"
        "  call Start\n"
        "  mov %rbx, %rsp\n"
        "  xor %edx, %edx\n"
        "  jmp *%rax\n");
static long Call(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "+a"(number)
                   : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return number;
}
#elif defined(__aarch64__)
enum { kRead = 67, kOpen = 56, kReadLink = 78, kMap = 222, kWrite = 64,
       kClose = 57, kExit = 94 };
__asm__(".section .start,\"ax\"\n"
        "  mov x29, #0\n"
        "  mov x0, sp\n"
        "  mov x19, sp\n"
        "  bl Start\n"
        "  mov sp, x19\n"
        "  mov x16, x0\n"
        "  mov x0, #0\n"
        "  mov x30, #0\n"
        "  br x16\n");
static long Call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc #0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
}
#else
#error "deploy/packages/start knows x86-64 and AArch64"
#endif

// Of <fcntl.h> and <sys/mman.h>, which are not for code without a C library.
enum { kCurrentFolder = -100, kPrivate = 2, kFixed = 16, kAnonymous = 32,
       kNoReserve = 0x4000, kMapRead = 1, kMapWrite = 2, kMapExecute = 4,
       kMaxHeaders = 32, kMaxPath = 4096 };

// What add_start.py writes behind the code. Addresses are those that the program
// was linked for.
struct Parameters {
  uint64_t self;         // of this struct
  uint64_t entry;        // of the program's own first code
  uint64_t headers;      // of the loader's table of program headers
  uint64_t num_headers;
  char loader[];         // path, from the program's folder
};
extern const struct Parameters parameters __attribute__((visibility("hidden")));

static uint64_t Length(const char* text) {
  uint64_t length = 0;
  while (text[length] != '\0') ++length;
  return length;
}

static void Say(const char* text) {
  Call(kWrite, 2, (long)text, (long)Length(text), 0, 0, 0);
}

static void Fail(const char* path, const char* why) {
  Say("error: this program's loader ");
  Say(path);
  Say(why);
  Call(kExit, 127, 0, 0, 0, 0, 0);
  __builtin_unreachable();
}

static long Map(uint64_t at, uint64_t size, int access, int flags, long file,
                uint64_t offset) {
  return Call(kMap, (long)at, (long)size, access, flags, file, (long)offset);
}

static int Failed(long result) { return result < 0 && result >= -4095; }

// Writes the path of the loader: the program's folder, and the path from there.
static void FindLoader(char* path, const char* called) {
  long length = Call(kReadLink, kCurrentFolder, (long)"/proc/self/exe",
                     (long)path, kMaxPath, 0, 0);
  if (Failed(length) || length >= kMaxPath) {
    // There is no /proc: the path that the program was started by.
    length = (long)Length(called);
    if (length >= kMaxPath) Fail(called, ": the path is too long\n");
    for (long i = 0; i < length; ++i) path[i] = called[i];
  }
  while (length > 0 && path[length - 1] != '/') --length;
  const uint64_t more = Length(parameters.loader) + 1;
  if (length + more > kMaxPath) Fail(parameters.loader, ": its path is too long\n");
  for (uint64_t i = 0; i < more; ++i) path[length + i] = parameters.loader[i];
}

// Maps a segment of the loader as the kernel would.
static int MapSegment(const Elf64_Phdr* header, uint64_t base, uint64_t page,
                      long file) {
  const int access = (header->p_flags & PF_R ? kMapRead : 0) |
                     (header->p_flags & PF_W ? kMapWrite : 0) |
                     (header->p_flags & PF_X ? kMapExecute : 0);
  const uint64_t skip = header->p_vaddr & (page - 1);
  const uint64_t begin = base + header->p_vaddr - skip;
  const uint64_t file_end = base + header->p_vaddr + header->p_filesz;
  const uint64_t end = base + header->p_vaddr + header->p_memsz;
  const uint64_t mapped_end = (file_end + page - 1) & -page;
  if (Failed(Map(begin, file_end - begin, access, kPrivate | kFixed, file,
                 header->p_offset - skip))) {
    return 0;
  }
  if (end == file_end) return 1;
  for (volatile char* at = (char*)file_end; at < (char*)mapped_end; ++at) *at = 0;
  return end <= mapped_end ||
         !Failed(Map(mapped_end, end - mapped_end, access,
                     kPrivate | kFixed | kAnonymous, -1, 0));
}

// Returns the loader's entry, and its address in `base`.
static uint64_t MapLoader(const char* path, uint64_t page, uint64_t* base) {
  const long file = Call(kOpen, kCurrentFolder, (long)path, 0x80000, 0, 0, 0);
  if (Failed(file)) Fail(path, " cannot be opened\n");
  Elf64_Ehdr elf;
  Elf64_Phdr headers[kMaxHeaders];
  if (Call(kRead, file, (long)&elf, sizeof(elf), 0, 0, 0) != sizeof(elf) ||
      *(const uint32_t*)elf.e_ident != 0x464c457f || elf.e_phnum > kMaxHeaders ||
      Call(kRead, file, (long)headers, elf.e_phnum * sizeof(*headers),
           (long)elf.e_phoff, 0, 0) != (long)(elf.e_phnum * sizeof(*headers))) {
    Fail(path, " is no ELF file\n");
  }
  uint64_t end = 0;  // The first segment of a loader begins at 0.
  for (int i = 0; i < elf.e_phnum; ++i) {
    const uint64_t its_end = headers[i].p_vaddr + headers[i].p_memsz;
    if (headers[i].p_type == PT_LOAD && its_end > end) end = its_end;
  }
  const long at = Map(0, end, 0, kPrivate | kAnonymous | kNoReserve, -1, 0);
  if (Failed(at)) Fail(path, ": no memory\n");
  for (int i = 0; i < elf.e_phnum; ++i) {
    if (headers[i].p_type == PT_LOAD &&
        !MapSegment(&headers[i], (uint64_t)at, page, file)) {
      Fail(path, " cannot be mapped (a file system mounted noexec?)\n");
    }
  }
  Call(kClose, file, 0, 0, 0, 0, 0);
  *base = (uint64_t)at;
  return (uint64_t)at + elf.e_entry;
}

// Returns where to go on. `stack` is the program's: argc, argv, the environment
// and the auxiliary vector, in which the loader reads what to start.
__attribute__((used)) uint64_t Start(uint64_t* stack) {
  uint64_t* at = stack + 1 + stack[0] + 1;
  while (*at != 0) ++at;
  Elf64_auxv_t* const vector = (Elf64_auxv_t*)(at + 1);
  uint64_t page = 4096;
  const char* called = "";
  for (Elf64_auxv_t* one = vector; one->a_type != AT_NULL; ++one) {
    if (one->a_type == AT_PAGESZ) page = one->a_un.a_val;
    if (one->a_type == AT_EXECFN) called = (const char*)one->a_un.a_val;
  }
  char path[kMaxPath];
  FindLoader(path, called);
  uint64_t base;
  const uint64_t entry = MapLoader(path, page, &base);
  const uint64_t moved = (uint64_t)&parameters - parameters.self;
  for (Elf64_auxv_t* one = vector; one->a_type != AT_NULL; ++one) {
    if (one->a_type == AT_BASE) one->a_un.a_val = base;
    if (one->a_type == AT_ENTRY) one->a_un.a_val = moved + parameters.entry;
    if (one->a_type == AT_PHDR) one->a_un.a_val = moved + parameters.headers;
    if (one->a_type == AT_PHNUM) one->a_un.a_val = parameters.num_headers;
  }
  return entry;
}
