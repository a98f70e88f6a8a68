//! The behaviours of DTrace's fbt, pid and sdt, and for each the test that checks it in Trapline.
//!
//! This table is an index: the tests that it names check the behaviours. It holds only tests that run and can fail: each
//! is a `#[test]`, is not ignored, and reaches an assertion.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeSet;
use trapline_house::root;

use crate::tests_can_fail::all_tests;

/// Provider, behaviour, file, test. A behaviour with several tests has several rows.
const TABLE: &str = "
fbt | both entry encodings | tests/tests/fbt_functions.rs | both_encodings_of_the_frame_are_entered_and_left_by_strict_rules
fbt | both entry encodings | providers/src/fbt/scan.rs | both_encodings_of_the_frame_are_entries_of_ia32
fbt | endbr64 then push | providers/src/fbt/scan.rs | a_push_after_endbr_is_the_strict_entry_and_endbr_the_full_one
fbt | no frame pointer | tests/tests/fbt_functions.rs | a_function_without_a_frame_or_after_endbr_has_its_first_byte_and_its_ret_by_full_rules
fbt | return offset and value | tests/tests/fbt_functions.rs | three_ways_out_are_one_probe_each_with_its_offset_and_value
fbt | ten arguments | tests/tests/fbt_functions.rs | ten_arguments_are_those_of_the_call
fbt | ten arguments by each convention | providers/tests/arguments.rs | ten_arguments_are_found_by_each_convention
fbt | three rets, one id | tests/tests/fbt_functions.rs | three_ways_out_are_one_probe_each_with_its_offset_and_value
fbt | recursion balance | tests/tests/fbt_functions.rs | a_recursion_is_left_as_often_as_it_is_entered_and_in_the_reverse_order
fbt | shared address | tests/tests/fbt.rs | two_names_of_one_address_both_fire_and_a_weak_one_does_not
fbt | disable restores bytes | tests/tests/site_bytes.rs | loads_see_the_original_and_fetches_the_patch_only_while_it_is_armed
fbt | foreign int3 and #UD reach the guest with exact IP | emu/tests/views.rs | a_declined_trap_reaches_the_guest_as_its_own
fbt | foreign int3 and #UD reach the guest with exact IP | tests/tests/fbt_functions.rs | the_kernels_own_breakpoint_and_undefined_instruction_reach_it_with_their_exact_addresses
fbt | foreign int3 and #UD reach the guest with exact IP | tests/tests/interposition.rs | every_exception_is_seen_once_and_declining_them_changes_nothing
fbt | jump-table guard | providers/src/fbt/scan.rs | a_byte_under_a_pointer_into_the_function_is_no_site
fbt | strict sites are those of DTrace | tests/tests/fbt.rs | strict_sites_are_those_that_objdump_shows
pid | all six ret forms with SP balanced | tests/tests/guest_linux_pid.rs | guest_pid_every_form_of_return
pid | conditional jump out | tests/tests/guest_linux_pid.rs | guest_pid_every_form_of_return
pid | ff ff function | tests/tests/guest_linux_pid.rs | guest_pid_every_form_of_return
pid | function inside a function | tests/tests/guest_linux_pid.rs | guest_pid_every_form_of_return
pid | ten arguments | tests/tests/guest_linux_pid.rs | guest_pid_entry_return_and_ten_arguments
pid | FPU and SSE state untouched with every instruction probed | tests/tests/guest_linux_pid.rs | guest_pid_on_every_instruction
pid | weak aliases | tests/tests/guest_linux_pid.rs | guest_pid_aliases_and_absolute_addresses
pid | fork, exec | tests/tests/guest_linux_pid.rs | guest_pid_children_threads_exec_and_dlopen
pid | offset inside an instruction refused, every error text | tests/tests/guest_linux_pid.rs | guest_pid_refuses_in_dtraces_words
pid | stripped programs | tests/tests/guest_linux_pid.rs | guest_pid_finds_main_of_stripped_programs
pid | python3.11 | tests/tests/guest_linux_static.rs | guest_python_is_probed_by_pid_too
sdt | lock nop site | tests/tests/lock_nop.rs | lock_nop_traps_after_the_first_nop_and_the_guest_does_not_notice
sdt | tail form | tests/tests/static_probes.rs | calls_that_became_nops_are_probed_by_lock_nop_also_the_tail_form
sdt | bytes of both | tests/tests/site_bytes.rs | loads_see_the_original_and_fetches_the_patch_only_while_it_is_armed
sdt | name mapping | providers/tests/sdt_calls.rs | a_kernels_calls_are_found_with_name_function_and_form
sdt | is-enabled only while enabled | tests/tests/static_probes.rs | an_is_enabled_site_answers_1_while_its_probe_is_enabled
sdt | stap arguments in their widths | providers/src/sdt/read/evaluate_tests.rs | a_value_is_cut_to_its_size_and_extended
sdt | semaphore 1 then 0 | tests/tests/guest_linux_static.rs | guest_programs_see_their_static_probes_while_they_are_enabled
sdt | twelve stap arguments in eight widths | tests/tests/guest_linux_static.rs | guest_arguments_of_notes_have_their_widths_and_a_bad_one_harms_no_other
sdt | bad operand isolated | providers/src/sdt/read/grammar_tests.rs | one_bad_argument_leaves_the_others
sdt | bad operand isolated | tests/tests/bad_probes.rs | invalid_notes_are_left_out_and_bad_operands_are_named_and_the_others_work
sdt | bad notes | providers/tests/sdt_notes.rs | a_bad_note_is_refused_with_its_reason_and_the_others_stand
sdt | a pointer is 0 before and after | tests/tests/site_bytes.rs | the_pointer_of_a_macro_probe_is_the_guests_to_see_and_0_before_and_after
all | two probes at one address, independent disable | tests/tests/site_bytes.rs | two_probes_at_one_site_are_disabled_one_by_one
all | every instruction probed or none | tests/tests/every_instruction.rs | the_embedded_guest_does_not_notice
all | every instruction probed or none | tests/tests/displacement.rs | random_streams_in_64_bit_code
all | a rewritten site is armed anew | tests/tests/site_bytes.rs | a_site_that_the_guest_rewrites_while_it_is_armed_is_armed_anew_and_keeps_what_the_guest_wrote
errors | descriptions and names that cannot be | tests/tests/bad_probes.rs | invalid_and_unmatched_descriptions_are_refused_alike_by_list_and_run
errors | clauses that cannot be | tests/tests/bad_probes.rs | invalid_clauses_are_refused
errors | hostile files | tests/tests/bad_probes.rs | damaged_files_are_read_or_refused_and_the_rest_of_the_guest_is_probed
faults | invalid address, illegal operation, divide-by-zero | tests/tests/handler_errors.rs | each_kind_of_fault_has_its_sentence_each_probe_its_count_and_the_others_go_on
";

#[test]
fn each_behaviour_of_the_real_providers_has_a_test_that_runs_and_can_fail() {
    let (tests, mut rows) = (all_tests(), BTreeSet::new());
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        let row: Vec<&str> = line.split(" | ").collect();
        let [_, _, file, name] = row.as_slice() else { panic!("{line}") };
        assert!(rows.insert(line), "{line} is listed twice");
        let path = root().join(file).canonicalize().unwrap_or_else(|error| panic!("{file}: {error}"));
        let test = tests.iter().find(|test| test.file == path && test.name == *name);
        let test = test.unwrap_or_else(|| panic!("{file} has no test {name}"));
        assert!(!test.ignored && test.asserts, "{test:?}");
    }
    assert!(rows.len() > 25, "{}", rows.len());
}
