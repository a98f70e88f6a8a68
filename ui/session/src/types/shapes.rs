//! How values of C's types are shown.

use std::sync::PoisonError;

use trapline_d::{ArgumentType, GuestMember, GuestType, GuestTypeId, TypeTag, Types};
use trapline_providers::Probe;
use trapline_rpn::Width;
use trapline_trace::{Field, Members, Pointee, Shape};

use super::GuestTypes;
use super::flags::flags;

/// Most bytes of a text.
const TEXT: u16 = 64;
/// Bytes of a struct that are shown from its start.
const SHOWN: u64 = 64;
/// Most members that are shown.
const MOST: usize = 6;
/// Deepest nesting of members without names.
const DEEPEST: usize = 8;

/// The members that tell most of a struct, for large structs of Linux. Members that a kernel lacks are left out.
const TELLING: &[(&str, &[&str])] = &[
    ("bio", &["bi_opf", "bi_iter.bi_sector", "bi_iter.bi_size"]),
    ("dentry", &["d_name.name"]),
    ("file", &["f_flags", "f_mode", "f_pos"]),
    ("filename", &["name"]),
    ("inode", &["i_mode", "i_ino", "i_size"]),
    ("kmem_cache", &["name", "object_size"]),
    ("linux_binprm", &["filename", "argc"]),
    ("module", &["name"]),
    ("super_block", &["s_id"]),
    ("task_struct", &["pid", "comm"]),
    ("vm_area_struct", &["vm_start", "vm_end", "vm_flags"]),
];

/// The members of types to which D translates arguments, and where the kernel's struct has their values. Members that are
/// computed are left out.
const TRANSLATED: &[(&str, &[(&str, &str)])] = &[
    ("psinfo_t *", &[("pr_pid", "tgid"), ("pr_fname", "comm")]),
    ("lwpsinfo_t *", &[("pr_lwpid", "pid"), ("pr_pri", "prio"), ("pr_onpro", "thread_info.cpu")]),
    (
        "bufinfo_t *",
        &[("b_bcount", "bi_iter.bi_size"), ("b_blkno", "bi_iter.bi_sector"), ("b_error", "bi_status")],
    ),
    ("devinfo_t *", &[]),
    ("fileinfo_t *", &[]),
];

/// C's own integer types: name, whether signed, bits; 0 for a word of the guest.
const INTEGERS: &[(&str, bool, u32)] = &[
    ("int", true, 32),
    ("unsigned int", false, 32),
    ("unsigned", false, 32),
    ("long", true, 0),
    ("long int", true, 0),
    ("unsigned long", false, 0),
    ("long long", true, 64),
    ("unsigned long long", false, 64),
    ("short", true, 16),
    ("unsigned short", false, 16),
    ("char", true, 8),
    ("signed char", true, 8),
    ("unsigned char", false, 8),
    ("size_t", false, 0),
    ("ssize_t", true, 0),
    ("pid_t", true, 32),
    ("uid_t", false, 32),
    ("gid_t", false, 32),
    ("umode_t", false, 16),
    ("off_t", true, 0),
    ("loff_t", true, 64),
    ("u32", false, 32),
    ("u64", false, 64),
];

/// Finds out how the arguments of a probe are shown.
pub(super) struct Reader<'a> {
    pub types: &'a GuestTypes,
    /// Whether the arguments are those of a system call: then memory that the call fills is not shown.
    pub is_syscall: bool,
}

impl Reader<'_> {
    /// How argument `n` is shown, and its type as C writes it.
    pub fn shape(&self, probe: &Probe, names: &[String], n: usize, ty: &ArgumentType) -> (Shape, String) {
        let (shape, text) = match ty {
            ArgumentType::Guest(id) => (self.of(*id), self.types.type_text(*id)),
            ArgumentType::Named { native, translated } => match self.translated(native, translated) {
                Some(shape) => (shape, translated.clone()),
                None => (self.named(native), native.clone()),
            },
        };
        let name = names.get(n).map(String::as_str).unwrap_or_default();
        let at_entry = &*probe.name.name != "return";
        let place = format!("{}:{}", probe.name.provider, probe.name.function);
        (if at_entry { flagged(shape, &place, name) } else { shape }, text)
    }

    /// An argument that D translates, by the members that the kernel's struct has as they are.
    fn translated(&self, native: &str, translated: &str) -> Option<Shape> {
        let (_, members) = TRANSLATED.iter().find(|(known, _)| *known == translated)?;
        let name = native.strip_prefix("struct ")?.trim_end_matches(['*', ' ']);
        let id = self.types.type_named(TypeTag::Struct, None, name)?;
        let named =
            |(name, path): &(&str, &str)| Some(Field { name: (*name).to_owned(), ..self.at_path(id, path)? });
        let fields: Vec<Field> = members.iter().filter_map(named).collect();
        if fields.is_empty() {
            return Some(Shape::Pointer(Pointee::Unread));
        }
        Some(Shape::Pointer(Pointee::Struct(Members { reads: reads(&fields), fields, more: true })))
    }

    /// A type that is written in C.
    fn named(&self, text: &str) -> Shape {
        let text = text.trim().replace("__user ", "");
        if let Some(to) = text.strip_suffix('*') {
            let (to, is_const) = match to.trim().strip_prefix("const ") {
                Some(to) => (to.trim(), true),
                None => (to.trim(), false),
            };
            // A system call fills what it does not promise to leave alone.
            if self.is_syscall && !is_const {
                return Shape::Pointer(Pointee::Unread);
            }
            return Shape::Pointer(match to.strip_prefix("struct ") {
                _ if to == "char" => Pointee::Text(TEXT),
                Some(name) => {
                    let id = self.types.type_named(TypeTag::Struct, None, name.trim());
                    id.map_or(Pointee::Unread, |id| self.pointee(id))
                }
                None => Pointee::Unread,
            });
        }
        let text = text.trim_start_matches("const ").trim();
        let word = if self.types.is_wide() { 64 } else { 32 };
        if let Some((_, signed, bits)) = INTEGERS.iter().find(|(name, ..)| *name == text) {
            return Shape::Int { bits: if *bits == 0 { word } else { *bits }, signed: *signed };
        }
        let typedef = self.types.type_named(TypeTag::Typedef, None, text);
        typedef.map_or(Shape::Hex { bits: word }, |id| self.of(id))
    }

    /// A value of a type of the guest.
    fn of(&self, id: GuestTypeId) -> Shape {
        let bits = |size: u8| u32::from(size) * 8;
        let word = if self.types.is_wide() { 64 } else { 32 };
        match self.types.plain(id) {
            GuestType::Int { name, size: 1, .. } if name == "_Bool" || name == "bool" => Shape::Bool,
            // No value that is shown has so many bits.
            GuestType::Int { size, .. } if size > 8 => Shape::Inside,
            GuestType::Int { size, signed, .. } => Shape::Int { bits: bits(size), signed },
            GuestType::Enum { size, signed, items, .. } => Shape::Enum { bits: bits(size), signed, items },
            GuestType::Pointer(to) => Shape::Pointer(self.pointee(to)),
            GuestType::Float { size } => Shape::Float { bits: bits(size) },
            GuestType::Composite { size, .. } if size <= 8 => Shape::Hex { bits: size as u32 * 8 },
            GuestType::Composite { .. } | GuestType::Array { .. } => Shape::Inside,
            _ => Shape::Hex { bits: word },
        }
    }

    fn pointee(&self, to: GuestTypeId) -> Pointee {
        let known = || self.types.pointees.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known().get(&to) {
            return known.clone();
        }
        let found = self.read_pointee(to);
        known().insert(to, found.clone());
        found
    }

    fn read_pointee(&self, to: GuestTypeId) -> Pointee {
        match self.types.plain(to) {
            GuestType::Int { name, size: 1, .. } if name == "char" => Pointee::Text(TEXT),
            GuestType::Composite { name, members: Some(members), size, .. } => {
                self.members(&name, to, &members, size).map_or(Pointee::Unread, Pointee::Struct)
            }
            _ => Pointee::Unread,
        }
    }

    /// The members of a struct that are shown; `None` if there are none.
    fn members(&self, name: &str, id: GuestTypeId, all: &[GuestMember], size: u64) -> Option<Members> {
        let telling = TELLING.iter().find(|(known, _)| *known == name);
        let mut fields: Vec<Field> = telling
            .iter()
            .flat_map(|(_, paths)| paths.iter())
            .filter_map(|path| self.at_path(id, path))
            .collect();
        let mut more = true;
        if fields.is_empty() {
            self.first(all, 0, DEEPEST, &mut fields);
            let within = fields.iter().take_while(|field| end(field) <= SHOWN * 8).count().min(MOST);
            more = within < fields.len() || fields.last().map_or(0, end) < size.saturating_mul(8);
            fields.truncate(within);
        }
        for field in &mut fields {
            let shape = std::mem::replace(&mut field.shape, Shape::Inside);
            field.shape = flagged(shape, name, &field.name);
        }
        if fields.is_empty() {
            return None;
        }
        // A gap at the end is padding if it is shorter than a word.
        let last = fields.iter().map(end).max().unwrap_or_default();
        let is_whole = telling.is_none() && size.saturating_mul(8).saturating_sub(last) < 64;
        let more = more && !(is_whole && fields.len() == all.len());
        Some(Members { reads: reads(&fields), fields, more })
    }

    /// The members in order, with those of members without a name; of a union only the first one.
    fn first(&self, all: &[GuestMember], base: u64, depth: usize, fields: &mut Vec<Field>) {
        for member in all {
            if fields.len() > MOST {
                return;
            }
            let at = base.saturating_add(member.bit_offset);
            if let (true, GuestType::Composite { union, members: Some(inner), .. }) =
                (member.name.is_empty() && depth > 0, self.types.plain(member.ty))
            {
                let most = if union { 1 } else { inner.len() };
                self.first(inner.get(..most).unwrap_or_default(), at, depth - 1, fields);
                continue;
            }
            fields.extend(self.field(member.name.clone(), at, member.bits, member.ty));
        }
    }

    /// A member by its path: `bi_iter.bi_sector`. It keeps the last name of the path.
    fn at_path(&self, id: GuestTypeId, path: &str) -> Option<Field> {
        let (mut inside, mut base, mut found) = (id, 0u64, None);
        for part in path.split('.') {
            let (member, at) = self.member(inside, part, DEEPEST)?;
            base = base.checked_add(at)?;
            inside = member.ty;
            found = Some(member);
        }
        let member = found?;
        self.field(path.to_owned(), base, member.bits, member.ty)
    }

    /// The member of this name and its place in bits, also inside members without a name.
    fn member(&self, id: GuestTypeId, name: &str, depth: usize) -> Option<(GuestMember, u64)> {
        let GuestType::Composite { members: Some(members), .. } = self.types.plain(id) else { return None };
        members.into_iter().find_map(|member| {
            let at = member.bit_offset;
            if member.name == name {
                return Some((member, at));
            }
            let inside = (member.name.is_empty() && depth > 0).then_some(member.ty)?;
            let (found, within) = self.member(inside, name, depth - 1)?;
            Some((found, at.checked_add(within)?))
        })
    }

    fn field(&self, name: String, bit_offset: u64, bits: Option<u32>, ty: GuestTypeId) -> Option<Field> {
        let word = if self.types.is_wide() { 64 } else { 32 };
        let (shape, size) = match self.types.plain(ty) {
            GuestType::Int { name, size: 1, .. } if name == "_Bool" => (Shape::Bool, 8),
            GuestType::Int { size, .. } if size > 8 => (Shape::Inside, u64::from(size) * 8),
            GuestType::Int { size, signed, .. } => {
                let own = u32::from(size) * 8;
                (Shape::Int { bits: bits.unwrap_or(own), signed }, own.into())
            }
            GuestType::Enum { size, signed, items, .. } => {
                let own = u32::from(size) * 8;
                (Shape::Enum { bits: bits.unwrap_or(own), signed, items }, own.into())
            }
            GuestType::Pointer(to) => {
                let text = matches!(self.types.plain(to), GuestType::Int { name, .. } if name == "char");
                (Shape::Pointer(if text { Pointee::Text(TEXT / 2) } else { Pointee::Unread }), word)
            }
            GuestType::Float { size } => (Shape::Float { bits: u32::from(size) * 8 }, u64::from(size) * 8),
            GuestType::Composite { size, .. } => (Shape::Inside, size.checked_mul(8)?),
            GuestType::Array { of, length } => {
                let is_text =
                    matches!(self.types.plain(of), GuestType::Int { name, size: 1, .. } if name == "char");
                let element = self.types.bytes(of).unwrap_or(0);
                let shape = if is_text { Shape::Characters } else { Shape::Elements };
                (shape, element.checked_mul(length)?.checked_mul(8)?)
            }
            GuestType::Void
            | GuestType::Typedef { .. }
            | GuestType::Qualified { .. }
            | GuestType::Function { .. } => {
                return None;
            }
        };
        Some(Field { name, bit_offset, bits: bits.map_or(size, u64::from), shape })
    }
}

/// The name of a floating-point type of so many bytes.
const fn float_name(size: u8) -> &'static str {
    match size {
        2 => "_Float16",
        4 => "float",
        8 => "double",
        _ => "long double",
    }
}

fn end(field: &Field) -> u64 {
    field.bit_offset.saturating_add(field.bits)
}

/// The parts of a struct that hold these members: members that are near each other are read together.
fn reads(fields: &[Field]) -> Vec<(u64, u64)> {
    let bytes = |field: &Field| (field.bit_offset / 8, end(field).div_ceil(8));
    let mut places: Vec<(u64, u64)> = fields.iter().map(bytes).collect();
    places.sort_unstable();
    let mut reads: Vec<(u64, u64)> = Vec::new();
    for (start, end) in places {
        match reads.last_mut().filter(|(first, _)| end.saturating_sub(*first) <= SHOWN) {
            Some((first, length)) => *length = (*length).max(end - *first),
            None => reads.push((start, end - start)),
        }
    }
    reads
}

/// The shape of a number whose flags have known names.
fn flagged(shape: Shape, place: &str, name: &str) -> Shape {
    let Shape::Int { bits, .. } = shape else { return shape };
    let Some(known) = flags(place, name) else { return shape };
    let names = known.iter().map(|(name, mask, value)| ((*name).to_owned(), *mask, *value));
    Shape::Flags { bits, names: names.collect() }
}

impl GuestTypes {
    /// A type without its names and qualifiers.
    pub(super) fn plain(&self, mut id: GuestTypeId) -> GuestType {
        for _ in 0..super::arguments::DEEPEST {
            match self.describe(id) {
                GuestType::Typedef { to, .. } | GuestType::Qualified { to, .. } => id = to,
                other => return other,
            }
        }
        GuestType::Void
    }

    fn is_wide(&self) -> bool {
        self.target.width() == Width::W64
    }

    /// Bytes of a value; `None` if that is unknown.
    fn bytes(&self, id: GuestTypeId) -> Option<u64> {
        Some(match self.plain(id) {
            GuestType::Int { size, .. } | GuestType::Enum { size, .. } | GuestType::Float { size } => {
                size.into()
            }
            GuestType::Pointer(_) => {
                if self.is_wide() {
                    8
                } else {
                    4
                }
            }
            GuestType::Composite { size, .. } => size,
            _ => return None,
        })
    }

    /// A type as C writes it; arrays and functions are shortened.
    pub(super) fn type_text(&self, id: GuestTypeId) -> String {
        self.type_text_within(id, DEEPEST)
    }

    fn type_text_within(&self, id: GuestTypeId, depth: usize) -> String {
        let Some(depth) = depth.checked_sub(1) else { return "..".to_owned() };
        let tagged = |word: &str, name: &str| match name {
            "" => format!("{word} {{..}}"),
            name => format!("{word} {name}"),
        };
        match self.describe(id) {
            GuestType::Void => "void".to_owned(),
            GuestType::Int { name, .. } | GuestType::Typedef { name, .. } => name,
            GuestType::Float { size } => float_name(size).to_owned(),
            GuestType::Pointer(to) => match self.type_text_within(to, depth) {
                to if to.ends_with('*') => format!("{to}*"),
                to => format!("{to} *"),
            },
            GuestType::Array { of, .. } => format!("{}[]", self.type_text_within(of, depth)),
            GuestType::Composite { union, name, .. } => tagged(if union { "union" } else { "struct" }, &name),
            GuestType::Enum { name, .. } => tagged("enum", &name),
            GuestType::Qualified { word, to } => format!("{word} {}", self.type_text_within(to, depth)),
            GuestType::Function { .. } => "(function)".to_owned(),
        }
    }
}
