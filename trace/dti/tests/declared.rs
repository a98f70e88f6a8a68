//! Definitions of handles, as docs/dti.md has them, are C.

use std::path::Path;
use std::process::Command;

/// Figure 4 of the paper, with the definition in one piece.
const FIGURE: &str = r#"
#include <trapline/dti.h>
#define DRV_NAME "driver"
static char my_buf[4096 * 4];
static DEFINE_DTI_HANDLE(my_handle, DRV_NAME, 4096 * 32, DTI_LEVEL_DEBUG, my_buf);
DEFINE_DTI_HANDLE(other, "other", 4096 * 32, DTI_LEVEL_DEBUG, NULL);
int init_mydriver(void) { return INIT_DTI_HANDLE(my_handle) + INIT_DTI_HANDLE(other); }
void my_driver_body(int n) { dti_printk(my_handle, DTI_LEVEL_DEFAULT, "n is %d", n); }
void cleanup_mydriver(void) { CLEANUP_DTI_HANDLE(my_handle); }
"#;

#[test]
fn a_handle_is_defined_for_one_file_or_for_all() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figure.c");
    std::fs::write(&file, FIGURE).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-images/include");
    for (compiler, width) in [("gcc", "-m32"), ("gcc", "-m64"), ("clang", "-m32"), ("clang", "-m64")] {
        let mut command = Command::new(compiler);
        command.args([width, "-Wall", "-Wextra", "-Werror", "-ffreestanding", "-c", "-o"]);
        command.arg(folder.path().join("figure.o")).arg("-I").arg(&include).arg(&file);
        let made = command.output().unwrap();
        assert!(made.status.success(), "{compiler} {width}: {}", String::from_utf8_lossy(&made.stderr));
    }
}
