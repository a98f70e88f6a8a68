// The engine's private layout: where Unicorn 2.1.5 keeps its state, as one table with types.
//
// Each line is a constant for `layout.rs`, its value, and what the engine's headers must say it is. The build script has a
// C compiler compare the two (`build.rs`), so a line that is wrong does not build. Both include this file, each with its
// own `offsets!`.

offsets! {
    /// `struct uc_struct`: the engine handle.
    mod uc {
        /// `CPUState *cpu`.
        CPU: usize = 440, "offsetof(struct uc_struct, cpu)";
        /// `TCGContext *tcg_ctx`.
        TCG: usize = 768, "offsetof(struct uc_struct, tcg_ctx)";
        /// `bool stop_request`.
        STOP_REQUEST: usize = 1389, "offsetof(struct uc_struct, stop_request)";
        /// `uint64_t invalid_addr`: linear address of the access that the fill hook refused.
        INVALID_ADDR: usize = 1416, "offsetof(struct uc_struct, invalid_addr)";
        /// `int invalid_error`: what `uc_emu_start` returns.
        INVALID_ERROR: usize = 1424, "offsetof(struct uc_struct, invalid_error)";
        /// `bool no_exit_request`: drops the exit check after each load and store.
        NO_EXIT_REQUEST: usize = 2034, "offsetof(struct uc_struct, no_exit_request)";
        /// `bool skip_sync_pc_on_exit`: hooks and stops take the program counter as it stands, without a search for it.
        SKIP_SYNC_PC: usize = 14898, "offsetof(struct uc_struct, skip_sync_pc_on_exit)";
    }

    /// `CPUState`.
    mod cpu {
        /// `bool exit_request`: looked at by the main loop between blocks, not by blocks.
        EXIT_REQUEST: usize = 21, "offsetof(CPUState, exit_request)";
        /// `uint32_t cflags_next_tb`: flags of the next block only; the low 15 bits cap its length.
        CFLAGS_NEXT_TB: usize = 24, "offsetof(CPUState, cflags_next_tb)";
        /// `void *env_ptr`.
        ENV_PTR: usize = 296, "offsetof(CPUState, env_ptr)";
        /// `TranslationBlock *tb_jmp_cache[]`: the blocks found last, by a hash of their linear address.
        JUMP_CACHE: usize = 312, "offsetof(CPUState, tb_jmp_cache)";
        /// log2 of its entries.
        JUMP_CACHE_BITS: u32 = 12, "TB_JMP_CACHE_BITS";
        /// Entries of the blocks of one page, which lie together.
        JUMPS_OF_PAGE: usize = 64, "TB_JMP_PAGE_SIZE";
        /// `struct uc_struct *uc`: after it.
        UC: usize = 33192, "offsetof(CPUState, uc)";
    }

    /// `TCGContext`.
    mod tcg {
        /// `tcg_insn_unit *code_buf`: where the back end writes the block that it translates, or wrote the last one.
        CODE_BUF: usize = 64, "offsetof(TCGContext, code_buf)";
        /// `void *code_gen_ptr`: the end of the last block; the beginning of one that is being translated.
        CODE_GEN_PTR: usize = 192, "offsetof(TCGContext, code_gen_ptr)";
        /// `CPUState *cpu`: not null while the front end translates.
        CPU: usize = 224, "offsetof(TCGContext, cpu)";
        /// `struct uc_struct *uc`.
        UC: usize = 39280, "offsetof(TCGContext, uc)";
    }

    /// `TranslationBlock`.
    mod block {
        /// `target_ulong pc`.
        PC: usize = 0, "offsetof(TranslationBlock, pc)";
        /// `uint32_t cflags`.
        CFLAGS: usize = 24, "offsetof(TranslationBlock, cflags)";
        /// The bits of it that cap the block's length.
        COUNT: u32 = 0x7fff, "CF_COUNT_MASK";
        /// A bit without meaning unless QEMU's icount is used: only a look-up that asks for it finds a block with it.
        APART: u32 = 0x8000, "CF_LAST_IO";
    }

    /// `struct hook`.
    mod hook {
        /// `void *user_data`: a constant of each block, taken when the block is translated.
        USER_DATA: usize = 48, "offsetof(struct hook, user_data)";
    }

    /// The softmmu TLB, at negative offsets from `CPUX86State`.
    mod tlb {
        /// Number of MMU indices: kernel with SMAP, user, kernel without.
        MODES: usize = 3, "NB_MMU_MODES";
        /// The second of them.
        USER: usize = 1, "MMU_USER_IDX";
        /// `CPUTLBDesc d[0]` relative to env.
        DESC: isize = -2160, "(long)offsetof(ArchCPU, neg.tlb.d) - (long)offsetof(ArchCPU, env)";
        /// Size of one `CPUTLBDesc`.
        DESC_SIZE: isize = 696, "sizeof(CPUTLBDesc)";
        /// `size_t n_used_entries` inside a `CPUTLBDesc`.
        USED: isize = 32, "offsetof(CPUTLBDesc, n_used_entries)";
        /// `CPUTLBEntry vtable[]` inside a `CPUTLBDesc`.
        VTABLE: isize = 48, "offsetof(CPUTLBDesc, vtable)";
        /// Entries of the victim table.
        VTABLE_LEN: usize = 8, "CPU_VTLB_SIZE";
        /// `CPUTLBDescFast f[0]` relative to env.
        FAST: isize = -64, "(long)offsetof(ArchCPU, neg.tlb.f) - (long)offsetof(ArchCPU, env)";
        /// Size of one `CPUTLBDescFast`.
        FAST_SIZE: isize = 16, "sizeof(CPUTLBDescFast)";
        /// `uintptr_t mask` inside it: the number of entries less one, times the size of one.
        MASK: usize = 0, "offsetof(CPUTLBDescFast, mask)";
        /// `CPUTLBEntry *table` inside it.
        TABLE: usize = 8, "offsetof(CPUTLBDescFast, table)";
        /// Size of one `CPUTLBEntry`.
        ENTRY_SIZE: usize = 64, "sizeof(CPUTLBEntry)";
        /// log2 of [`ENTRY_SIZE`].
        ENTRY_BITS: u32 = 6, "CPU_TLB_ENTRY_BITS";
        /// `target_ulong addr_read` inside an entry.
        READ: usize = 0, "offsetof(CPUTLBEntry, addr_read)";
        /// `target_ulong addr_write` inside an entry.
        WRITE: usize = 8, "offsetof(CPUTLBEntry, addr_write)";
        /// `target_ulong addr_code` inside an entry.
        CODE: usize = 16, "offsetof(CPUTLBEntry, addr_code)";
    }

    /// `SegmentCache`.
    mod segment {
        SELECTOR: usize = 0, "offsetof(SegmentCache, selector)";
        BASE: usize = 8, "offsetof(SegmentCache, base)";
        LIMIT: usize = 16, "offsetof(SegmentCache, limit)";
        FLAGS: usize = 20, "offsetof(SegmentCache, flags)";
        SIZE: usize = 24, "sizeof(SegmentCache)";
        /// The L bit of `flags`.
        LONG: u32 = 1 << 21, "DESC_L_MASK";
        /// The D/B bit of `flags`.
        BIG: u32 = 1 << 22, "DESC_B_MASK";
    }

    /// `CPUX86State`.
    mod env {
        REGS: usize = 0, "offsetof(CPUX86State, regs)";
        EIP: usize = 128, "offsetof(CPUX86State, eip)";
        EFLAGS: usize = 136, "offsetof(CPUX86State, eflags)";
        CC_DST: usize = 144, "offsetof(CPUX86State, cc_dst)";
        CC_SRC: usize = 152, "offsetof(CPUX86State, cc_src)";
        CC_OP: usize = 168, "offsetof(CPUX86State, cc_op)";
        DF: usize = 172, "offsetof(CPUX86State, df)";
        HFLAGS: usize = 176, "offsetof(CPUX86State, hflags)";
        SEGS: usize = 184, "offsetof(CPUX86State, segs)";
        LDT: usize = 328, "offsetof(CPUX86State, ldt)";
        TR: usize = 352, "offsetof(CPUX86State, tr)";
        GDT: usize = 376, "offsetof(CPUX86State, gdt)";
        IDT: usize = 400, "offsetof(CPUX86State, idt)";
        CR: usize = 424, "offsetof(CPUX86State, cr)";
        EFER: usize = 592, "offsetof(CPUX86State, efer)";
        FPSTT: usize = 604, "offsetof(CPUX86State, fpstt)";
        FPUS: usize = 608, "offsetof(CPUX86State, fpus)";
        FPUC: usize = 610, "offsetof(CPUX86State, fpuc)";
        FPTAGS: usize = 612, "offsetof(CPUX86State, fptags)";
        FPREGS: usize = 624, "offsetof(CPUX86State, fpregs)";
        FPOP: usize = 752, "offsetof(CPUX86State, fpop)";
        FPCS: usize = 754, "offsetof(CPUX86State, fpcs)";
        FPDS: usize = 756, "offsetof(CPUX86State, fpds)";
        FPIP: usize = 760, "offsetof(CPUX86State, fpip)";
        FPDP: usize = 768, "offsetof(CPUX86State, fpdp)";
        /// `float_status fp_status`: of the x87.
        FP_STATUS: usize = 776, "offsetof(CPUX86State, fp_status)";
        /// `float_status sse_status`.
        SSE_STATUS: usize = 808, "offsetof(CPUX86State, sse_status)";
        MXCSR: usize = 816, "offsetof(CPUX86State, mxcsr)";
        XMM: usize = 824, "offsetof(CPUX86State, xmm_regs)";
        SYSENTER_CS: usize = 4800, "offsetof(CPUX86State, sysenter_cs)";
        SYSENTER_ESP: usize = 4808, "offsetof(CPUX86State, sysenter_esp)";
        SYSENTER_EIP: usize = 4816, "offsetof(CPUX86State, sysenter_eip)";
        STAR: usize = 4824, "offsetof(CPUX86State, star)";
        LSTAR: usize = 4840, "offsetof(CPUX86State, lstar)";
        CSTAR: usize = 4848, "offsetof(CPUX86State, cstar)";
        FMASK: usize = 4856, "offsetof(CPUX86State, fmask)";
        KERNELGSBASE: usize = 4864, "offsetof(CPUX86State, kernelgsbase)";
        TSC_AUX: usize = 4896, "offsetof(CPUX86State, tsc_aux)";
        PAT: usize = 5280, "offsetof(CPUX86State, pat)";
        ERROR_CODE: usize = 5384, "offsetof(CPUX86State, error_code)";
        EXCEPTION_IS_INT: usize = 5388, "offsetof(CPUX86State, exception_is_int)";
        DR: usize = 5400, "offsetof(CPUX86State, dr)";
        OLD_EXCEPTION: usize = 5496, "offsetof(CPUX86State, old_exception)";
        /// Size of a general register, and of a control or debug register.
        WORD: usize = 8, "sizeof(target_ulong)";
        /// Stride of one x87 register.
        FPREG_STRIDE: usize = 16, "sizeof(FPReg)";
        /// Stride of one vector register (ZMM sized); the low 16 bytes are XMM.
        XMM_STRIDE: usize = 64, "sizeof(ZMMReg)";
        /// `cc_op` of flags that lie in `cc_src` as EFLAGS has them.
        CC_OP_EFLAGS: u32 = 1, "CC_OP_EFLAGS";
        /// The first of the four values of `cc_op`, one for each size, of an addition: `cc_dst` has the result.
        CC_OP_ADD: u32 = 6, "CC_OP_ADDB";
        /// Of a subtraction or comparison: `cc_src` has what was subtracted.
        CC_OP_SUB: u32 = 14, "CC_OP_SUBB";
        /// Of AND, OR, XOR, TEST.
        CC_OP_LOGIC: u32 = 22, "CC_OP_LOGICB";
        CC_OP_INC: u32 = 26, "CC_OP_INCB";
        CC_OP_DEC: u32 = 30, "CC_OP_DECB";
    }

    /// `float_status`: how the engine computes with floating-point numbers.
    mod float {
        /// `signed char float_rounding_mode`.
        ROUNDING: usize = 1, "offsetof(float_status, float_rounding_mode)";
        /// `uint8_t float_exception_flags`, which computations add to. Their bits are those of the status word and MXCSR.
        FLAGS: usize = 2, "offsetof(float_status, float_exception_flags)";
        /// `signed char floatx80_rounding_precision`: 32, 64 or 80.
        PRECISION: usize = 3, "offsetof(float_status, floatx80_rounding_precision)";
        /// `flag flush_to_zero`: small results are 0.
        FLUSH_RESULTS: usize = 4, "offsetof(float_status, flush_to_zero)";
        /// `flag flush_inputs_to_zero`.
        FLUSH_OPERANDS: usize = 5, "offsetof(float_status, flush_inputs_to_zero)";
        /// Rounding to nearest; down, up and to zero follow, as in RC.
        NEAREST: u8 = 0, "float_round_nearest_even";
        DOWN: u8 = 1, "float_round_down";
        UP: u8 = 2, "float_round_up";
        ZERO: u8 = 3, "float_round_to_zero";
        INVALID: u8 = 1, "float_flag_invalid";
        DIVIDE: u8 = 4, "float_flag_divbyzero";
        OVERFLOW: u8 = 8, "float_flag_overflow";
        UNDERFLOW: u8 = 16, "float_flag_underflow";
        INEXACT: u8 = 32, "float_flag_inexact";
        /// A result was made 0.
        FLUSHED: u8 = 128, "float_flag_output_denormal";
    }

    /// `HF_*`: bits of the engine's hidden flags.
    mod hidden {
        CPL: u32 = 3, "HF_CPL_MASK";
        INHIBIT_IRQ: u32 = 1 << 3, "HF_INHIBIT_IRQ_MASK";
        CS32: u32 = 1 << 4, "HF_CS32_MASK";
        SS32: u32 = 1 << 5, "HF_SS32_MASK";
        ADDSEG: u32 = 1 << 6, "HF_ADDSEG_MASK";
        PE: u32 = 1 << 7, "HF_PE_MASK";
        MP: u32 = 1 << 9, "HF_MP_MASK";
        EM: u32 = 1 << 10, "HF_EM_MASK";
        TS: u32 = 1 << 11, "HF_TS_MASK";
        LMA: u32 = 1 << 14, "HF_LMA_MASK";
        CS64: u32 = 1 << 15, "HF_CS64_MASK";
        OSFXSR: u32 = 1 << 22, "HF_OSFXSR_MASK";
        HIGHEST: u32 = 1 << 26, "HF_MPX_IU_MASK";
    }
}
