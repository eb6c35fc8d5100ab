/* A tool that NVTX loads through NVTX_INJECTION64_PATH: writes each push and pop to $NVTX_TOOL_LOG.
 *
 * Only the parts of NVTX's binary interface that are used here are declared. Compiled with
 * -DOLD_NSYS it refuses extensions, as nsys up to 2023.4 does. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*function)(void);
struct callbacks {
  size_t size;
  int (*module_table)(int module, function ***table, unsigned *count);
};
struct attributes {
  uint16_t version, size;
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type, reserved;
  int64_t payload;
  int32_t message_type;
  const void *message;
};
enum { CALLBACKS = 1, CORE2 = 5, INT64 = 2, REGISTERED = 3 };
enum { PUSH = 4, POP = 5, REGISTER = 10, CREATE = 12 };

static FILE *out;

static const void *create(const char *name) {
  char *copy = NULL;
  if (asprintf(&copy, "%s", name) < 0) abort();
  return copy;
}
static const void *intern(const void *domain, const char *text) {
  fprintf(out, "register\t%s\t%s\n", (const char *)domain, text);
  return create(text);
}
static int push(const char *domain, const struct attributes *what) {
  fprintf(out, "push\t%s\t%s\t", domain, what->message_type == REGISTERED ? (const char *)what->message : "?");
  if (what->payload_type == INT64) fprintf(out, "%lld", (long long)what->payload);
  fputc('\n', out);
  return 0;
}
static int pop(const char *domain) {
  fprintf(out, "pop\t%s\n", domain);
  return 0;
}

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
  const struct callbacks *callbacks = export_table(CALLBACKS);
  function **table = NULL;
  unsigned count = 0;
  const char *path = getenv("NVTX_TOOL_LOG");
  out = path ? fopen(path, "a") : NULL;
  if (!out || !callbacks->module_table(CORE2, &table, &count) || count <= CREATE) return 0;
  setvbuf(out, NULL, _IOLBF, 0);
  *table[PUSH] = (function)push;
  *table[POP] = (function)pop;
  *table[REGISTER] = (function)intern;
  *table[CREATE] = (function)create;
  return 1;
}

#ifdef OLD_NSYS
int InitializeInjectionNvtxExtension(void *module) {
  (void)module;
  return 0;
}
#endif
