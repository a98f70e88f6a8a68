//! A guest that is written here: what a program makes of its types, symbols and arguments.

use super::*;
use crate::guest::{ArgumentPlace, ArgumentType, GuestArgument, GuestArguments, GuestSymbol};
use crate::{Compiler, Error, Model, Options};

const UNSIGNED_INT: GuestTypeId = GuestTypeId { file: 0, id: 1 };
const TASK: GuestTypeId = GuestTypeId { file: 0, id: 2 };
const TASK_POINTER: GuestTypeId = GuestTypeId { file: 0, id: 3 };
const STATE: GuestTypeId = GuestTypeId { file: 0, id: 4 };
const INNER: GuestTypeId = GuestTypeId { file: 0, id: 5 };
const CHAR: GuestTypeId = GuestTypeId { file: 0, id: 6 };
const COMM: GuestTypeId = GuestTypeId { file: 0, id: 7 };
const ENDLESS: GuestTypeId = GuestTypeId { file: 0, id: 8 };

/// One task, whose type leads back to itself.
#[derive(Debug)]
struct Guest;

fn member(name: &str, ty: GuestTypeId, bit_offset: u64, bits: Option<u32>) -> GuestMember {
    GuestMember { name: name.to_owned(), ty, bit_offset, bits }
}

fn composite(name: &str, size: u64, members: Vec<GuestMember>) -> GuestType {
    GuestType::Composite { union: false, name: name.to_owned(), size, members: Some(members) }
}

impl Types for Guest {
    fn type_named(&self, tag: TypeTag, _: Option<&str>, name: &str) -> Option<GuestTypeId> {
        match (tag, name) {
            (TypeTag::Struct, "task_struct") => Some(TASK),
            (TypeTag::Enum, "state") => Some(STATE),
            (TypeTag::Typedef, "endless_t") => Some(ENDLESS),
            _ => None,
        }
    }

    fn describe(&self, id: GuestTypeId) -> GuestType {
        match id {
            UNSIGNED_INT => GuestType::Int { name: "unsigned int".to_owned(), size: 4, signed: false },
            CHAR => GuestType::Int { name: "char".to_owned(), size: 1, signed: true },
            COMM => GuestType::Array { of: CHAR, length: 16 },
            TASK_POINTER => GuestType::Pointer(TASK),
            STATE => GuestType::Enum {
                name: "state".to_owned(),
                size: 1,
                signed: false,
                items: vec![("ASLEEP".to_owned(), 2), ("AWAKE".to_owned(), 3)],
            },
            INNER => composite("", 8, vec![member("depth", UNSIGNED_INT, 32, None)]),
            TASK => composite(
                "task_struct",
                64,
                vec![
                    member("next", TASK_POINTER, 0, None),
                    member("comm", COMM, 64, None),
                    member("", INNER, 192, None),
                    member("low", UNSIGNED_INT, 256, Some(3)),
                    member("across", UNSIGNED_INT, 284, Some(8)),
                    member("state", STATE, 320, None),
                ],
            ),
            ENDLESS => GuestType::Typedef { name: "endless_t".to_owned(), to: ENDLESS },
            _ => GuestType::Void,
        }
    }

    fn symbol(&self, _: Option<&str>, name: &str) -> Result<Option<GuestSymbol>, String> {
        let ty = match name {
            "init_task" => Some(TASK),
            "blank" => None,
            "s_next" => return Err("`s_next` is ambiguous".to_owned()),
            _ => return Ok(None),
        };
        Ok(Some(GuestSymbol { address: 0x1000, ty, base: None }))
    }

    fn enumerator(&self, name: &str) -> Option<(i64, GuestTypeId)> {
        (name == "AWAKE").then_some((3, STATE))
    }

    fn arguments(&self, description: &str) -> GuestArguments {
        let argument = GuestArgument {
            ty: ArgumentType::Guest(TASK_POINTER),
            place: ArgumentPlace::Words { number: 1, pair: false },
        };
        match description {
            "wake:entry" => GuestArguments::Known(vec![argument]),
            "some:" => GuestArguments::Different,
            _ => GuestArguments::Unknown,
        }
    }
}

fn compiled(text: &str) -> Result<(), Error> {
    let mut compiler = Compiler::new(Model::Lp64, Options::default()).with_types(Arc::new(Guest));
    compiler.add(text.as_bytes(), &[b"d".to_vec()], &|_| None)?;
    compiler.finish().map(|_| ())
}

fn tag(text: &str) -> &'static str {
    compiled(text).map_or_else(|error| error.tag, |()| "none")
}

#[test]
fn members_lie_where_the_guest_says() {
    let mut types = TypeTable::new(Model::Lp64);
    types.imports.guest = Arc::new(Guest);
    let task = types.of_guest(TypeTag::Struct, "task_struct").unwrap();
    let place = |name: &str| types.member(task, name).map(|it| (it.offset, it.bits));
    assert_eq!(types.size(task), 64);
    assert_eq!(place("comm"), Some((8, None)));
    assert_eq!(place("depth"), Some((28, None)), "of a member without a name");
    assert_eq!(place("low"), Some((32, Some((0, 3)))));
    assert_eq!(
        place("across"),
        Some((35, Some((4, 8)))),
        "a bit-field beyond its unit lies in the next larger one"
    );
    let state = types.member(task, "state").unwrap();
    assert_eq!((types.size(state.ty), types.name(state.ty)), (1, "enum state".to_owned()));
    assert_eq!(types.name(types.member(task, "next").unwrap().ty), "struct task_struct *");
}

#[test]
fn programs_use_the_guests_types_and_symbols() {
    for text in [
        "BEGIN { trace(`init_task.comm); trace(stringof(`init_task.comm)); }",
        "BEGIN { trace(sizeof(struct task_struct) + offsetof(struct task_struct, depth)); }",
        "BEGIN { trace(((struct task_struct *)arg0)->next->next->comm); print(*(struct task_struct *)arg0); }",
        "BEGIN { trace(curthread->depth); self->t = curthread; trace(self->t->low); }",
        "BEGIN { x = &`init_task; trace(x->comm); y = AWAKE; trace((enum state)2); }",
        "wake:entry { trace(args[0]->comm); }",
        "struct task_struct { int own; }; BEGIN { trace(((struct task_struct *)arg0)->own); }",
    ] {
        assert_eq!(compiled(text), Ok(()), "{text}");
    }
}

#[test]
fn what_the_guest_does_not_have_is_refused() {
    assert_eq!(tag("BEGIN { trace(`nothing); }"), "D_IDENT_UNDEF");
    assert_eq!(tag("BEGIN { trace(`blank); }"), "D_SYM_NOTYPES");
    assert_eq!(tag("BEGIN { trace(`s_next); }"), "D_IDENT_AMBIG");
    assert_eq!(tag("BEGIN { trace(`init_task.nothing); }"), "D_TYPE_MEMBER");
    assert_eq!(tag("BEGIN { trace(((struct other *)arg0)->x); }"), "D_OP_INCOMPLETE");
    assert_eq!(tag("wake:entry { trace(args[1]); }"), "D_ARGS_IDX");
    assert_eq!(tag("some: { trace(args[0]); }"), "D_ARGS_MULTI");
    assert_eq!(tag("wake:entry, BEGIN { trace(args[0]); }"), "D_ARGS_MULTI");
    assert_eq!(tag("endless_t x; BEGIN { trace(x); }"), "D_DECL_VOIDOBJ", "a typedef of itself ends as void");
}
