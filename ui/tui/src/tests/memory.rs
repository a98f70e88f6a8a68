//! The pane of memory.

use super::*;

fn memory(bench: &Bench) -> (u64, Vec<u8>) {
    let scene = bench.app.scene.as_ref().unwrap();
    (scene.memory_at, scene.memory.clone())
}

#[test]
fn bytes_that_a_move_has_changed_are_marked_both_ways() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]4z");
    let (at, before) = memory(&bench);
    bench.press(&format!("x{:#x}\n", at - 64));
    // `push ebp` writes the word below the stack pointer.
    for step in ["s", "S"] {
        let old = memory(&bench).1;
        bench.press(step);
        let new = memory(&bench).1;
        let changed = old.iter().zip(&new).filter(|(old, new)| old != new).count();
        assert!(changed > 0);
        let screen = bench.screen((80, 24));
        let stars = screen
            .lines()
            .skip(4)
            .filter(|line| line.starts_with('┃'))
            .map(|line| line[..60].matches('*').count());
        assert_eq!(stars.sum::<usize>(), changed, "{screen}");
    }
    assert_eq!(memory(&bench).1.get(64..96), before.get(..32));
}

#[test]
fn memory_is_searched_and_shown_again() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]");
    let word = memory(&bench).1[..4].to_vec();
    let at = memory(&bench).0;
    bench.press(&format!("x{:#x}\n", at - 4096));
    bench.press("j");
    bench.key(KeyCode::Right, KeyModifiers::NONE);
    bench.press(&format!(
        "X{}\n",
        word.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    ));
    let (found, bytes) = memory(&bench);
    assert!(found > at - 4096 && found <= at, "{found:#x}");
    assert_eq!(bytes[..4], word);
    assert_eq!(bench.app.focused(), Pane::Memory);
    bench.key(KeyCode::Backspace, KeyModifiers::NONE);
    bench.press("");
    assert_eq!((memory(&bench).0, bench.app.selected.byte), (at - 4096, 17));
    bench.type_all("X");
    bench.key(KeyCode::Char('u'), KeyModifiers::CONTROL);
    bench.type_all("\"no such text in this guest\"\n");
    bench.settle();
    let said = bench.app.message.clone().unwrap();
    assert!(said.contains("these bytes are not in memory from"), "{said}");
    bench.type_all("X0x12345:1\n");
    let said = bench.app.message.clone().unwrap();
    assert!(said.contains("is not"), "{said}");
}

#[test]
fn the_writer_of_the_selected_byte_and_a_watchpoint_on_it_are_reached() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]");
    let at = bench.app.at();
    bench.press("ss");
    bench.press("4o");
    // Right after the push, which has written there.
    assert_eq!(bench.app.at(), at + 1);
    bench.press("o");
    let writer = bench.app.at();
    assert!(writer < at);
    bench.key(KeyCode::Right, KeyModifiers::NONE);
    bench.type_all("W");
    let typed = bench.app.prompt.clone().unwrap().text;
    assert_eq!(typed, format!("{:#x}", memory(&bench).0 + 1));
    bench.press("\nc");
    assert!(bench.app.at() > writer);
    bench.press("C");
    assert!(bench.app.at() <= writer);
}

#[test]
fn memory_at_a_register_is_where_the_register_points_at_each_position() {
    let mut bench = Bench::new(PLAIN);
    bench.press("]]]xesp+8\n");
    let pointer = |bench: &Bench| bench.app.scene.as_ref().unwrap().register("esp").unwrap();
    let at = memory(&bench).0;
    assert_eq!(at, pointer(&bench) + 8);
    // `push ebp`.
    bench.press("s");
    assert_eq!((memory(&bench).0, pointer(&bench) + 8), (at - 4, at - 4));
    bench.press("S");
    assert_eq!(memory(&bench).0, at);
    bench.press(&format!("x{at:#x}\ns"));
    assert_eq!(memory(&bench).0, at);
}

#[test]
fn bytes_that_no_instruction_has_written_are_not_said_to_be_unwritten() {
    let mut bench = Bench::new(PLAIN);
    // The kernel's code, which the loader has put there.
    bench.press("]]]xdo_fork\n");
    bench.type_all("4o");
    bench.settle();
    let said = bench.app.message.clone().unwrap();
    assert!(said.contains("no instruction wrote to") && said.contains("another address"), "{said}");
}

#[test]
fn a_guest_without_types_is_told_so_in_a_sentence() {
    let mut bench = Bench::new(PLAIN);
    bench.type_all("x(struct task_struct *)esp\n");
    bench.wait_for(|app| app.message.is_some());
    let said = bench.app.message.clone().unwrap();
    assert!(said.contains("the guest has no type `struct task_struct`"), "{said}");
}
