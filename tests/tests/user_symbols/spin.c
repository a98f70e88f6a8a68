/* A program whose function has the name that the command line gives: programs of equal bytes that differ in their
 * symbols only. It needs no library. It has a statically defined probe, spin:::start, as <sys/sdt.h> writes it. */
volatile unsigned long n;

__attribute__((noipa)) void FUNCTION(void) {
  for (unsigned k = 0; k < 300000; k++) n++;
}

__attribute__((noipa)) int program(void) {
  __asm__ volatile(
      "990: nop\n"
      ".pushsection .note.stapsdt,\"\",\"note\"\n"
      ".balign 4; .4byte 992f-991f, 994f-993f, 3\n"
      "991: .asciz \"stapsdt\"\n"
      "992: .balign 4\n"
      "993: .8byte 990b, 0, 0; .asciz \"spin\"; .asciz \"start\"; .asciz \"\"\n"
      "994: .balign 4\n"
      ".popsection");
  FUNCTION();
  return 0;
}

__attribute__((force_align_arg_pointer)) void _start(void) {
  long code = program();
  for (;;) __asm__ volatile("syscall" : : "a"(60), "D"(code) : "rcx", "r11", "memory");
}
