/*
 * Macro-declared probes: one header, no declaration, no build step.
 *
 *     #include <trapline/probe.h>
 *
 *     TRAPLINE_PROBE_ns(request, length, path);
 *
 * declares the probe point `request` with two arguments and is the point itself. The letters in the macro's name are
 * the arguments' types:
 *
 *     n  integer of the machine's word, signed       l  integer of 64 bits, signed
 *     s  string, const char *                        p  pointer, const void *
 *
 * The point is a call through the global function pointer `systemtap_probe_ns__request`, if that is not 0. Without
 * a handler's address there it costs one load, one test and one branch; the arguments are not evaluated.
 * All points of one name share the pointer. Each leaves a note (owner `trapline`, type 1) with where it is and the
 * source text of its arguments, which takes no memory at run time.
 *
 * There is a macro for each combination of up to three letters. Up to six arguments:
 *
 *     TRAPLINE_PROBE5(n, s, l, p, n,  request, a, b, c, d, e);
 *
 * It needs nothing of a C library, works in kernels and programs of 32 and 64 bits, and wants GNU C (gcc, clang), also
 * as C++, for ELF. In assembly source (.S) the one macro is
 *
 *     TRAPLINE_PROBE ns, request, %rsi, path(%rip)
 *
 * whose arguments are operands of a push, not relative to the stack pointer: in 32-bit code an `l` is two, the low half
 * first. All registers but the flags are kept.
 *
 * The macros and their form are those of US patent 8,739,135: a conditional indirect call through a global function
 * pointer whose symbol holds prefix, argument types and name.
 */
#ifndef TRAPLINE_PROBE_H
#define TRAPLINE_PROBE_H

#ifdef __x86_64__
#define TRAPLINE_WORD_ ".8byte"
#define TRAPLINE_SIZE_ "8"
#define TRAPLINE_CALL_
#else
#define TRAPLINE_WORD_ ".4byte"
#define TRAPLINE_SIZE_ "4"
/* Kernels may pass arguments in registers; a probe's are on the stack. */
#define TRAPLINE_CALL_ __attribute__((regparm(0)))
#endif

#ifndef __ASSEMBLER__

#define TRAPLINE_TEXT_(text) #text
#define TRAPLINE_QUOTE_(text) TRAPLINE_TEXT_(text)

/* The types of arguments, by letter. */
#define TRAPLINE_TYPE_n long
#define TRAPLINE_TYPE_s const char *
#define TRAPLINE_TYPE_l long long
#define TRAPLINE_TYPE_p const void *

/* The pointer, once a file, and once a program by its group; then the note of this point. */
#define TRAPLINE_POINT_(symbol, texts) \
	".ifndef " symbol "\n" \
	".pushsection .data." symbol ",\"awG\",@progbits," symbol ",comdat\n" \
	".balign " TRAPLINE_SIZE_ "\n" \
	".globl " symbol "\n.hidden " symbol "\n" \
	".type " symbol ",@object\n.size " symbol "," TRAPLINE_SIZE_ "\n" \
	symbol ":\n" TRAPLINE_WORD_ " 0\n.popsection\n.endif\n" \
	"990: .pushsection .note.trapline,\"?\",@note\n.balign 4\n" \
	".4byte 992f-991f,994f-993f,1\n991: .asciz \"trapline\"\n992: .balign 4\n" \
	"993: " TRAPLINE_WORD_ " 990b, " symbol "\n" \
	".asciz \"" symbol "\", \"" __FILE__ ":" TRAPLINE_QUOTE_(__LINE__) "\"" texts "\n" \
	"994: .balign 4\n.popsection\n"

#ifdef __cplusplus
/*
 * In C++ the pointer has no name of its own and is read in assembly: g++ 12 forgets the assembler name of a variable that
 * is declared in a template of a namespace, and clang wants a definition of one in an unnamed namespace.
 */
#ifdef __x86_64__
#define TRAPLINE_READ_(symbol) "movq " symbol "(%%rip), %0"
#elif defined(__PIC__)
#define TRAPLINE_READ_(symbol) "call 997f\n997: popl %0\nmovl " symbol "-997b(%0), %0"
#else
#define TRAPLINE_READ_(symbol) "movl " symbol ", %0"
#endif
#define TRAPLINE_CALL_IF_(symbol, prototype, arguments, texts) do { \
	void (TRAPLINE_CALL_ *trapline_handler_) prototype; \
	__asm__ __volatile__(TRAPLINE_POINT_(#symbol, texts)); \
	__asm__ __volatile__(TRAPLINE_READ_(#symbol) : "=r"(trapline_handler_)); \
	if (__builtin_expect(trapline_handler_ != 0, 0)) \
		trapline_handler_ arguments; \
} while (0)
#else
#define TRAPLINE_CALL_IF_(symbol, prototype, arguments, texts) do { \
	extern void (TRAPLINE_CALL_ *symbol) prototype \
		__asm__(#symbol) __attribute__((visibility("hidden"))); \
	void (TRAPLINE_CALL_ *trapline_handler_) prototype; \
	__asm__ __volatile__(TRAPLINE_POINT_(#symbol, texts)); \
	trapline_handler_ = *(__typeof__(trapline_handler_) volatile *)&symbol; \
	if (__builtin_expect(trapline_handler_ != 0, 0)) \
		trapline_handler_ arguments; \
} while (0)
#endif

#define TRAPLINE_AT0_(symbol) \
	TRAPLINE_CALL_IF_(symbol, (void), \
		(), "")
#define TRAPLINE_AT1_(symbol, t1, a, x1) \
	TRAPLINE_CALL_IF_(symbol, (t1), \
		((t1)(a)), ", " TRAPLINE_TEXT_(x1))
#define TRAPLINE_AT2_(symbol, t1, t2, a, b, x1, x2) \
	TRAPLINE_CALL_IF_(symbol, (t1, t2), \
		((t1)(a), (t2)(b)), ", " TRAPLINE_TEXT_(x1) ", " TRAPLINE_TEXT_(x2))
#define TRAPLINE_AT3_(symbol, t1, t2, t3, a, b, c, x1, x2, x3) \
	TRAPLINE_CALL_IF_(symbol, (t1, t2, t3), \
		((t1)(a), (t2)(b), (t3)(c)), ", " TRAPLINE_TEXT_(x1) ", " TRAPLINE_TEXT_(x2) ", " \
		TRAPLINE_TEXT_(x3))
#define TRAPLINE_AT4_(symbol, t1, t2, t3, t4, a, b, c, d, x1, x2, x3, x4) \
	TRAPLINE_CALL_IF_(symbol, (t1, t2, t3, t4), \
		((t1)(a), (t2)(b), (t3)(c), (t4)(d)), ", " TRAPLINE_TEXT_(x1) ", " \
		TRAPLINE_TEXT_(x2) ", " TRAPLINE_TEXT_(x3) ", " TRAPLINE_TEXT_(x4))
#define TRAPLINE_AT5_(symbol, t1, t2, t3, t4, t5, a, b, c, d, e, x1, x2, x3, x4, x5) \
	TRAPLINE_CALL_IF_(symbol, (t1, t2, t3, t4, t5), \
		((t1)(a), (t2)(b), (t3)(c), (t4)(d), (t5)(e)), ", " TRAPLINE_TEXT_(x1) ", " \
		TRAPLINE_TEXT_(x2) ", " TRAPLINE_TEXT_(x3) ", " TRAPLINE_TEXT_(x4) ", " TRAPLINE_TEXT_(x5))
#define TRAPLINE_AT6_(symbol, t1, t2, t3, t4, t5, t6, a, b, c, d, e, f, x1, x2, x3, x4, x5, x6) \
	TRAPLINE_CALL_IF_(symbol, (t1, t2, t3, t4, t5, t6), \
		((t1)(a), (t2)(b), (t3)(c), (t4)(d), (t5)(e), (t6)(f)), ", " \
		TRAPLINE_TEXT_(x1) ", " TRAPLINE_TEXT_(x2) ", " TRAPLINE_TEXT_(x3) ", " \
		TRAPLINE_TEXT_(x4) ", " TRAPLINE_TEXT_(x5) ", " TRAPLINE_TEXT_(x6))

/* For any types: the letters one by one, the name, the arguments. */
#define TRAPLINE_PROBE0(name) \
	TRAPLINE_AT0_(systemtap_probe___##name)
#define TRAPLINE_PROBE1(t1, name, a) \
	TRAPLINE_AT1_(systemtap_probe_##t1##__##name, TRAPLINE_TYPE_##t1, a, #a)
#define TRAPLINE_PROBE2(t1, t2, name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_##t1##t2##__##name, TRAPLINE_TYPE_##t1, TRAPLINE_TYPE_##t2, a, b, #a, #b)
#define TRAPLINE_PROBE3(t1, t2, t3, name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_##t1##t2##t3##__##name, TRAPLINE_TYPE_##t1, TRAPLINE_TYPE_##t2, \
		TRAPLINE_TYPE_##t3, a, b, c, #a, #b, #c)
#define TRAPLINE_PROBE4(t1, t2, t3, t4, name, a, b, c, d) \
	TRAPLINE_AT4_(systemtap_probe_##t1##t2##t3##t4##__##name, TRAPLINE_TYPE_##t1, TRAPLINE_TYPE_##t2, \
		TRAPLINE_TYPE_##t3, TRAPLINE_TYPE_##t4, a, b, c, d, #a, #b, #c, #d)
#define TRAPLINE_PROBE5(t1, t2, t3, t4, t5, name, a, b, c, d, e) \
	TRAPLINE_AT5_(systemtap_probe_##t1##t2##t3##t4##t5##__##name, TRAPLINE_TYPE_##t1, TRAPLINE_TYPE_##t2, \
		TRAPLINE_TYPE_##t3, TRAPLINE_TYPE_##t4, TRAPLINE_TYPE_##t5, a, b, c, d, e, #a, #b, #c, #d, #e)
#define TRAPLINE_PROBE6(t1, t2, t3, t4, t5, t6, name, a, b, c, d, e, f) \
	TRAPLINE_AT6_(systemtap_probe_##t1##t2##t3##t4##t5##t6##__##name, TRAPLINE_TYPE_##t1, \
		TRAPLINE_TYPE_##t2, TRAPLINE_TYPE_##t3, TRAPLINE_TYPE_##t4, TRAPLINE_TYPE_##t5, \
		TRAPLINE_TYPE_##t6, a, b, c, d, e, f, #a, #b, #c, #d, #e, #f)

/* The types in the name. */
#define TRAPLINE_PROBE_n(name, a) \
	TRAPLINE_AT1_(systemtap_probe_n__##name, TRAPLINE_TYPE_n, a, #a)
#define TRAPLINE_PROBE_s(name, a) \
	TRAPLINE_AT1_(systemtap_probe_s__##name, TRAPLINE_TYPE_s, a, #a)
#define TRAPLINE_PROBE_l(name, a) \
	TRAPLINE_AT1_(systemtap_probe_l__##name, TRAPLINE_TYPE_l, a, #a)
#define TRAPLINE_PROBE_p(name, a) \
	TRAPLINE_AT1_(systemtap_probe_p__##name, TRAPLINE_TYPE_p, a, #a)
#define TRAPLINE_PROBE_nn(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_nn__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, a, b, #a, #b)
#define TRAPLINE_PROBE_ns(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_ns__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, a, b, #a, #b)
#define TRAPLINE_PROBE_nl(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_nl__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, a, b, #a, #b)
#define TRAPLINE_PROBE_np(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_np__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, a, b, #a, #b)
#define TRAPLINE_PROBE_sn(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_sn__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, a, b, #a, #b)
#define TRAPLINE_PROBE_ss(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_ss__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, a, b, #a, #b)
#define TRAPLINE_PROBE_sl(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_sl__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, a, b, #a, #b)
#define TRAPLINE_PROBE_sp(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_sp__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, a, b, #a, #b)
#define TRAPLINE_PROBE_ln(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_ln__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, a, b, #a, #b)
#define TRAPLINE_PROBE_ls(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_ls__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, a, b, #a, #b)
#define TRAPLINE_PROBE_ll(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_ll__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, a, b, #a, #b)
#define TRAPLINE_PROBE_lp(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_lp__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, a, b, #a, #b)
#define TRAPLINE_PROBE_pn(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_pn__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, a, b, #a, #b)
#define TRAPLINE_PROBE_ps(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_ps__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, a, b, #a, #b)
#define TRAPLINE_PROBE_pl(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_pl__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, a, b, #a, #b)
#define TRAPLINE_PROBE_pp(name, a, b) \
	TRAPLINE_AT2_(systemtap_probe_pp__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, a, b, #a, #b)
#define TRAPLINE_PROBE_nnn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nnn__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nns(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nns__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nnl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nnl__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nnp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nnp__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nsn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nsn__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nss(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nss__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nsl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nsl__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nsp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nsp__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nln(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nln__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nls(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nls__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nll(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nll__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nlp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nlp__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_npn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_npn__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_nps(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_nps__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_npl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_npl__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_npp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_npp__##name, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_snn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_snn__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_sns(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_sns__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_snl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_snl__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_snp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_snp__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_ssn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_ssn__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_sss(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_sss__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_ssl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_ssl__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_ssp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_ssp__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_sln(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_sln__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_sls(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_sls__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_sll(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_sll__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_slp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_slp__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_spn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_spn__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_sps(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_sps__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_spl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_spl__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_spp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_spp__##name, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lnn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lnn__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lns(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lns__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lnl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lnl__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lnp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lnp__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lsn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lsn__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lss(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lss__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lsl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lsl__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lsp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lsp__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lln(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lln__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lls(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lls__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lll(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lll__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_llp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_llp__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lpn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lpn__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lps(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lps__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lpl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lpl__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_lpp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_lpp__##name, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pnn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pnn__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pns(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pns__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pnl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pnl__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pnp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pnp__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_psn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_psn__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pss(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pss__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_psl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_psl__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_psp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_psp__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pln(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pln__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pls(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pls__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pll(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pll__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_plp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_plp__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_ppn(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_ppn__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, TRAPLINE_TYPE_n, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_pps(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_pps__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, TRAPLINE_TYPE_s, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_ppl(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_ppl__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, TRAPLINE_TYPE_l, a, b, c, \
		#a, #b, #c)
#define TRAPLINE_PROBE_ppp(name, a, b, c) \
	TRAPLINE_AT3_(systemtap_probe_ppp__##name, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, TRAPLINE_TYPE_p, a, b, c, \
		#a, #b, #c)

#else /* __ASSEMBLER__ */

#ifdef __x86_64__
#define TRAPLINE_ASM_WORD_ .8byte
#define TRAPLINE_ASM_SIZE_ 8
#else
#define TRAPLINE_ASM_WORD_ .4byte
#define TRAPLINE_ASM_SIZE_ 4
#endif

	/* Pushes the arguments from the last to the first. */
	.macro TRAPLINE_PUSH_ first, rest:vararg
	.ifnb \rest
	TRAPLINE_PUSH_ \rest
	.endif
	.ifnb \first
#ifdef __x86_64__
	pushq \first
#else
	pushl \first
#endif
	.set trapline_words_, trapline_words_ + 1
	.endif
	.endm

	/* Fills the argument registers from the stack, in the order of the call. */
	.macro TRAPLINE_POP_
	.irp register, %rdi, %rsi, %rdx, %rcx, %r8, %r9
	.if trapline_words_ > 0
	popq \register
	.set trapline_words_, trapline_words_ - 1
	.endif
	.endr
	.endm

	.macro TRAPLINE_PROBE types, name, arguments:vararg
	.ifndef systemtap_probe_\types\()__\name
	.pushsection .data.systemtap_probe_\types\()__\name, "awG", @progbits, systemtap_probe_\types\()__\name, comdat
	.balign TRAPLINE_ASM_SIZE_
	.globl systemtap_probe_\types\()__\name
	.hidden systemtap_probe_\types\()__\name
	.type systemtap_probe_\types\()__\name, @object
	.size systemtap_probe_\types\()__\name, TRAPLINE_ASM_SIZE_
systemtap_probe_\types\()__\name:
	TRAPLINE_ASM_WORD_ 0
	.popsection
	.endif
990:
	.pushsection .note.trapline, "?", @note
	.balign 4
	.4byte 992f-991f, 994f-993f, 1
991:	.asciz "trapline"
992:	.balign 4
993:	TRAPLINE_ASM_WORD_ 990b, systemtap_probe_\types\()__\name
	.asciz "systemtap_probe_\types\()__\name", "", "\arguments"
994:	.balign 4
	.popsection
#ifdef __x86_64__
	cmpq $0, systemtap_probe_\types\()__\name(%rip)
#else
	cmpl $0, systemtap_probe_\types\()__\name
#endif
	jne 995f
996:
	.pushsection .text.trapline_probe, "ax?", @progbits
995:
#ifdef __x86_64__
	/* Beyond the red zone; the call finds the stack aligned. */
	leaq -128(%rsp), %rsp
	.irp register, %rbp, %rax, %rcx, %rdx, %rsi, %rdi, %r8, %r9, %r10, %r11
	pushq \register
	.endr
	.set trapline_words_, 0
	TRAPLINE_PUSH_ \arguments
	TRAPLINE_POP_
	movq %rsp, %rbp
	andq $-16, %rsp
	call *systemtap_probe_\types\()__\name(%rip)
	movq %rbp, %rsp
	.irp register, %r11, %r10, %r9, %r8, %rdi, %rsi, %rdx, %rcx, %rax, %rbp
	popq \register
	.endr
	leaq 128(%rsp), %rsp
#else
	.irp register, %eax, %ecx, %edx
	pushl \register
	.endr
	.set trapline_words_, 0
	TRAPLINE_PUSH_ \arguments
	call *systemtap_probe_\types\()__\name
	leal 4*trapline_words_(%esp), %esp
	.irp register, %edx, %ecx, %eax
	popl \register
	.endr
#endif
	jmp 996b
	.popsection
	.endm

#endif /* __ASSEMBLER__ */

#endif /* TRAPLINE_PROBE_H */
