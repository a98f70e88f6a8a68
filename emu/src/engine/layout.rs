//! The engine's private layout: the one file that knows where Unicorn 2.1.5 keeps its state.
//!
//! Offsets were read off the bundled source (`qemu/target/i386/cpu.h`, `include/uc_priv.h`,
//! `qemu/include/exec/cpu-defs.h`) compiled with its own flags. They hold for exactly the pinned,
//! bundled build; [`Layout::verify`] writes sentinels through the public API at start-up and refuses
//! to run when any of them is not found where this file says.
//!
//! Invariant: nothing outside `engine/` adds an offset to an engine pointer.

/// `struct uc_struct`: the engine handle.
pub(super) mod uc {
    /// `CPUState *cpu`.
    pub const CPU: usize = 440;
    /// `TCGContext *tcg_ctx`.
    pub const TCG: usize = 768;
    /// `bool stop_request`.
    pub const STOP_REQUEST: usize = 1389;
    /// `uint64_t invalid_addr`: linear address of the access that the fill hook refused.
    pub const INVALID_ADDR: usize = 1416;
    /// `bool no_exit_request`: drops the exit check after each load and store (engine hazard h1).
    pub const NO_EXIT_REQUEST: usize = 2034;
    /// `bool skip_sync_pc_on_exit`: hooks and stops take the program counter as it stands, without a search for it.
    pub const SKIP_SYNC_PC: usize = 14898;
}

/// `CPUState`.
pub(super) mod cpu {
    /// `bool exit_request`: looked at by the main loop between blocks, not by blocks.
    pub const EXIT_REQUEST: usize = 21;
    /// `uint32_t cflags_next_tb`: flags of the next block only; the low 15 bits cap its length.
    pub const CFLAGS_NEXT_TB: usize = 24;
    /// `void *env_ptr`.
    pub const ENV_PTR: usize = 296;
    /// `TranslationBlock *tb_jmp_cache[]`: the blocks found last, by a hash of their linear address.
    pub const JUMP_CACHE: usize = 312;
    /// log2 of its entries.
    const JUMP_CACHE_BITS: u32 = 12;
    /// Entries of the blocks of one page, which lie together.
    pub const JUMPS_OF_PAGE: usize = 1 << (JUMP_CACHE_BITS / 2);

    /// The entry for a block at linear `pc` (qemu's `exec/tb-hash.h`).
    pub fn jump_index(pc: u64) -> usize {
        const FOLD: u32 = 12 - JUMP_CACHE_BITS / 2;
        let folded = pc ^ pc >> FOLD;
        let page = (folded >> FOLD) as usize & ((1 << JUMP_CACHE_BITS) - JUMPS_OF_PAGE);
        page | folded as usize & (JUMPS_OF_PAGE - 1)
    }

    /// `struct uc_struct *uc`: behind it.
    pub const UC: usize = 33192;
}

/// `TCGContext`.
pub(super) mod tcg {
    /// `struct uc_struct *uc`.
    pub const UC: usize = 39280;
}

/// `TranslationBlock`.
pub(super) mod block {
    /// `target_ulong pc`.
    pub const PC: usize = 0;
    /// `uint32_t cflags`.
    pub const CFLAGS: usize = 24;
    /// Its bits that a block has which was translated for a step.
    pub const CAPPED: u32 = 0xffff;
}

/// `struct hook`.
pub(super) mod hook {
    /// `void *user_data`: a constant of each block, taken when the block is translated.
    pub const USER_DATA: usize = 48;
}

/// The softmmu TLB, at negative offsets from `CPUX86State`.
pub(super) mod tlb {
    /// Number of MMU indices (kernel with SMAP, user, kernel without).
    pub const MODES: usize = 3;
    /// Entries of each beyond which a table is not to grow. Programs lose theirs at each switch of address spaces.
    pub const LARGE: [usize; MODES] = [256, 256, 1024];
    /// `CPUTLBDesc d[0]` relative to env.
    pub const DESC: isize = -2160;
    /// Size of one `CPUTLBDesc`.
    pub const DESC_SIZE: isize = 696;
    /// `size_t n_used_entries` inside a `CPUTLBDesc`.
    pub const USED: isize = 32;
    /// `CPUTLBEntry vtable[8]` inside a `CPUTLBDesc`.
    pub const VTABLE: isize = 48;
    /// Entries of the victim table.
    pub const VTABLE_LEN: usize = 8;
    /// `CPUTLBDescFast f[0]` relative to env: `{ uintptr_t mask; CPUTLBEntry *table; }`.
    pub const FAST: isize = -64;
    /// Size of one `CPUTLBDescFast`.
    pub const FAST_SIZE: isize = 16;
    /// Size of one `CPUTLBEntry`: read, write, code addresses first.
    pub const ENTRY_SIZE: usize = 64;
    /// log2 of [`ENTRY_SIZE`].
    pub const ENTRY_BITS: u32 = 6;
}

/// `CPUX86State`.
pub(super) mod env {
    pub const REGS: usize = 0;
    pub const EIP: usize = 128;
    pub const EFLAGS: usize = 136;
    pub const CC_SRC: usize = 152;
    pub const CC_OP: usize = 168;
    pub const DF: usize = 172;
    pub const HFLAGS: usize = 176;
    pub const SEGS: usize = 184;
    pub const LDT: usize = 328;
    pub const TR: usize = 352;
    pub const GDT: usize = 376;
    pub const IDT: usize = 400;
    pub const CR: usize = 424;
    pub const EFER: usize = 592;
    pub const FPSTT: usize = 604;
    pub const FPUS: usize = 608;
    pub const FPUC: usize = 610;
    pub const FPTAGS: usize = 612;
    pub const FPREGS: usize = 624;
    pub const FPOP: usize = 752;
    pub const FPCS: usize = 754;
    pub const FPDS: usize = 756;
    pub const FPIP: usize = 760;
    pub const FPDP: usize = 768;
    pub const MXCSR: usize = 816;
    pub const XMM: usize = 824;
    /// Stride of one vector register (ZMM sized); the low 16 bytes are XMM.
    pub const XMM_STRIDE: usize = 64;
    pub const SYSENTER_CS: usize = 4800;
    pub const SYSENTER_ESP: usize = 4808;
    pub const SYSENTER_EIP: usize = 4816;
    pub const STAR: usize = 4824;
    pub const LSTAR: usize = 4840;
    pub const CSTAR: usize = 4848;
    pub const FMASK: usize = 4856;
    pub const KERNELGSBASE: usize = 4864;
    pub const TSC_AUX: usize = 4896;
    pub const PAT: usize = 5280;
    pub const ERROR_CODE: usize = 5384;
    pub const EXCEPTION_IS_INT: usize = 5388;
    pub const DR: usize = 5400;
    pub const OLD_EXCEPTION: usize = 5496;
    /// `features[FEAT_8000_0001_EDX]`: which extended instructions the translator accepts, as CPUID would say it.
    pub const FEATURES_EXT2: usize = 5680;
}

/// The engine is not the build whose layout this file describes.
#[derive(Debug, thiserror::Error)]
#[error(
    "the engine's layout differs from Unicorn 2.1.5's bundled build: {what} was not found at offset {offset}; \
     build with the pinned, bundled engine (UNICORN_NO_PKG_CONFIG=1)"
)]
pub struct LayoutMismatch {
    /// Which field.
    pub what: &'static str,
    /// Where it was looked for, in bytes.
    pub offset: usize,
}
