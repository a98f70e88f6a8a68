//! Compares the crate's table of the engine's layout (`src/engine/offsets.rs`) with the headers of the engine that it
//! is linked with: a C file of assertions, compiled as the engine's own files are.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

macro_rules! offsets {
    ($($(#[$about:meta])* mod $room:ident {
        $($(#[$doc:meta])* $name:ident: $ty:ty = $value:expr, $says:literal;)*
    })*) => {
        /// Name of a constant, its value, and the equal C expression.
        const OFFSETS: &[(&str, i64, &str)] = &[$($(
            (concat!(stringify!($room), "::", stringify!($name)), { const VALUE: $ty = $value; VALUE as i64 }, $says),
        )*)*];
    };
}

include!("src/engine/offsets.rs");

/// Assertions about the engine beyond its layout: the functions that `Engine::drop_block` and `engine/rescue.rs` call,
/// and the order of the CPU models.
const OTHERS: &str = r#"
_Static_assert(__builtin_types_compatible_p(__typeof__(&tb_phys_invalidate),
               void (*)(TCGContext *, TranslationBlock *, tb_page_addr_t)), "tb_phys_invalidate has another type");
void cpu_loop_exit(CPUState *cpu);
_Static_assert(sizeof(tb_page_addr_t) == 8, "tb_page_addr_t has another size");
_Static_assert(UC_CPU_X86_PENTIUM3 == 10 && UC_CPU_X86_NEHALEM == 15, "the CPU models have other numbers");
"#;

/// The headers that the assertions are about.
const HEADERS: &str = r#"
#include "qemu/osdep.h"
#include "cpu.h"
#include "exec/exec-all.h"
#include "exec/tb-hash.h"
#include "tcg/tcg.h"
#include "uc_priv.h"
#include <unicorn/unicorn.h>
"#;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/engine/offsets.rs");
    let built = built()?;
    let source = source(&built)?;
    let check = PathBuf::from(env::var("OUT_DIR")?).join("layout_check.c");
    fs::write(&check, assertions()?)?;
    let qemu = source.join("qemu");
    // The architecture for which the engine generates code.
    let host = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" | "x86" => "i386".to_string(),
        other => other.to_string(),
    };
    cc::Build::new()
        .cargo_metadata(false)
        .warnings(false)
        .define("NEED_CPU_H", None)
        .flag("-include")
        .flag("x86_64.h")
        .include(built.join("x86_64-softmmu"))
        .include(qemu.join("target/i386"))
        .include(&built)
        .include(source.join("glib_compat"))
        .include(&qemu)
        .include(qemu.join("include"))
        .include(source.join("include"))
        .include(qemu.join("tcg"))
        .include(qemu.join("tcg").join(host))
        .file(&check)
        .try_compile("layout_check")
        .map_err(|e| format!("the engine's layout is not what emu/src/engine/offsets.rs says: {e}"))?;
    Ok(())
}

/// Where the engine was built.
fn built() -> Result<PathBuf, Box<dyn Error>> {
    let root = env::var("DEP_UNICORN_ROOT").map_err(|_| {
        "the engine was not built from its bundled source; set UNICORN_NO_PKG_CONFIG=1 and build unicorn-engine-sys again"
    })?;
    Ok(Path::new(&root).join("build"))
}

/// The source that it was built from, as CMake has noted it.
fn source(built: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let cache = built.join("CMakeCache.txt");
    let text = fs::read_to_string(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    let home = text.lines().find_map(|line| line.strip_prefix("CMAKE_HOME_DIRECTORY:INTERNAL="));
    Ok(home.ok_or_else(|| format!("{} does not name the engine's source", cache.display()))?.into())
}

fn assertions() -> Result<String, Box<dyn Error>> {
    let mut text = HEADERS.to_string();
    for (name, value, says) in OFFSETS {
        writeln!(text, "_Static_assert((long)({says}) == {value}L, \"{name} is not {value}\");")?;
    }
    text.push_str(OTHERS);
    Ok(text)
}
