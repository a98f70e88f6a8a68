//! The life of a hit against a model that was written from the manual: random code of three tasks in two address spaces,
//! with instructions that fault and repeated ones, random probes on it, and commands, preemption and stops of the host in
//! between.
//!
//! Every case is run twice: once stepped and unprobed, which shows what each task did, and once probed. The machine
//! must be equal in both, and the probed run must agree with the model: records, counts and enabled probes.
//!
//! `TRAPLINE_HIT_LIFE=N` runs N cases, `TRAPLINE_HIT_LIFE_FROM=SEED` begins elsewhere.

#![allow(clippy::unwrap_used, clippy::panic)]

mod guest;
mod model;

use crate::common::{CODE, Rng};
use guest::{ABSENT, Act, Case, World};
use model::{Event, Handler, Model, Point, Record};
use std::fmt::Write as _;
use trapline_emu::Core;
use trapline_interposer::{Interposer, Place, ProgramId};
use trapline_rpn::{NoSymbols, Width, parse};
use trapline_tests::interposer;

/// Cases in CI.
const CASES: u64 = 4_000;
/// Memory that is always present.
const PRESENT: u64 = 0x3_2000;

/// A loop, and the offsets of its instructions that may be probed.
fn code(random: &mut Rng, ring: u8) -> (Vec<u8>, Vec<u64>) {
    let (mut code, mut sites) = (Vec::new(), Vec::new());
    let mut pushed = 0;
    for _ in 0..6 + random.below(10) {
        let address = [ABSENT[0], ABSENT[1], ABSENT[1] - 8, PRESENT][random.below(4) as usize] as u32;
        let mut add = |bytes: &[u8], may: bool| {
            if may {
                sites.push(code.len() as u64);
            }
            code.extend_from_slice(bytes);
        };
        match random.below(12) {
            0 => add(&[0x90], true),
            1 => add(&[0x42], true),
            2 => {
                add(&[0x50], true);
                pushed += 1;
            }
            3 if pushed > 0 => {
                add(&[0x58], true);
                pushed -= 1;
            }
            4 => add(&[&[0xbb][..], &address.to_le_bytes()].concat(), true),
            5 => add(&[0x8b, 0x03], true),
            6 => {
                add(&[&[0xb9][..], &(random.below(6) as u32).to_le_bytes()].concat(), false);
                add(&[&[0xbf][..], &address.to_le_bytes()].concat(), false);
                add(&[0xf3, 0xab], true);
            }
            7 => add(&[0x0f, 0x0b], true),
            8 if ring == 3 => add(&[0xf4], true),
            9 => add(&[0xcd, 0x80], false),
            10 => add(&[0xeb, 0x00], true),
            11 => {
                add(&[0xff, 0x33], true);
                add(&[0x83, 0xc4, 0x04], true);
            }
            _ => add(&[0x41], true),
        }
    }
    code.resize(code.len() + pushed as usize, 0x58);
    sites.push(code.len() as u64);
    code.push(0xe9);
    code.extend((-(code.len() as i32 + 4)).to_le_bytes());
    (code, sites)
}

fn points(random: &mut Rng, sites: &[u64]) -> Vec<Point> {
    let point = |random: &mut Rng| Point {
        ip: CODE + sites[random.below(sites.len() as u64) as usize],
        handler: match random.below(6) {
            0 => Handler::Abort,
            1 => Handler::RemoveAt(1 + random.below(4)),
            2 => Handler::Exit,
            _ => Handler::Log,
        },
        ignore: random.below(5).saturating_sub(2),
        maxhits: (random.below(2) == 0).then(|| 1 + random.below(3)),
        logonfault: random.below(3) == 0,
    };
    (0..1 + random.below(3)).map(|_| point(random)).collect()
}

fn case(seed: u64, ring: u8) -> (Case, Vec<Event>) {
    let mut random = Rng(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(seed * 2 + 1));
    (0..3).for_each(|_| {
        random.next();
    });
    let (code, sites) = code(&mut random, ring);
    let first: Vec<Event> =
        (0..1 + random.below(3)).map(|_| Event::Insert(points(&mut random, &sites))).collect();
    let length = 40 + random.below(160);
    let mut programs = first.len() as u64;
    let mut script = Vec::new();
    let mut at = 0;
    loop {
        at += 1 + random.below(40);
        if at >= length {
            break;
        }
        let act = match random.below(8) {
            0..=1 => Act::Slice,
            2..=3 => Act::Preempt,
            4 => {
                programs += 1;
                Act::Probes(Event::Insert(points(&mut random, &sites)))
            }
            5 if random.below(3) == 0 => Act::Probes(Event::Remove(random.below(programs) as usize)),
            _ => Act::Probes(Event::Switch {
                program: random.below(programs) as usize,
                point: random.below(3) as usize,
                on: random.below(2) == 0,
            }),
        };
        script.push((at, act));
    }
    (Case { code, script, length, seed: random.next() }, first)
}

/// A program of these points.
fn source(points: &[Point], code: &[u8]) -> String {
    let mut text = String::from("name = v\nmodtype = kernel\nvars = 1\n");
    for point in points {
        let opcode = code[(point.ip - CODE) as usize];
        let _ = writeln!(text, "address = {:#x}\nopcode = {opcode:#x}\nignore = {}", point.ip, point.ignore);
        if let Some(most) = point.maxhits {
            let _ = writeln!(text, "maxhits = {most}");
        }
        let yes = if point.logonfault { "yes" } else { "no" };
        let body = match point.handler {
            Handler::Log => "push lv, 0\nlog 1\nexit".to_owned(),
            Handler::Abort => "abort".to_owned(),
            Handler::Exit => "exit".to_owned(),
            Handler::RemoveAt(n) => {
                format!("push lv, 0\nlog 1\npush lv, 0\npush -{n}\nadd\njnz stays\nremove\nstays: exit")
            }
        };
        let _ = writeln!(text, "logonfault = {yes}\ninc lv, 0\n{body}");
    }
    text
}

fn change(ids: &mut Vec<ProgramId>, probes: &mut Interposer, core: &mut Core, event: &Event, code: &[u8]) {
    match event {
        Event::Insert(points) => {
            let program =
                parse("v.rpn", &source(points, code)).unwrap().link(Width::W32, &NoSymbols).unwrap();
            let places = points.iter().map(|p| Place::Kernel { linear: p.ip, paddr: p.ip }).collect();
            ids.push(probes.insert(core, "v", program, places).unwrap());
        }
        Event::Remove(program) => probes.remove(core, ids[*program]),
        Event::Switch { program, point, on } => {
            probes.set_enabled(core, ids[*program], *point, *on).unwrap();
        }
        Event::Attempt { .. } | Event::Resume { .. } => {}
    }
}

/// Runs a case; returns the difference, if any.
fn differs(world: &mut World, case: &Case, first: &[Event], in_line_after: u16) -> Option<String> {
    world.prepare(case);
    let (plain, events) = world.run(case, None, |_, _, _| {});
    let mut model = Model::new(guest::TASKS);
    first.iter().chain(&events).for_each(|event| model.happens(event));

    world.prepare(case);
    world.core_mut().set_in_line_after(in_line_after);
    let (mut probes, mut ids) = (interposer(), Vec::new());
    first.iter().for_each(|event| change(&mut ids, &mut probes, world.core_mut(), event, &case.code));
    let (probed, _) = world.run(case, Some(&mut probes), |probes, core, event| {
        change(&mut ids, probes, core, event, &case.code);
    });
    let found: Vec<Record> = (probes.channels().records().iter())
        .map(|r| Record {
            probe: r.header.probe as usize,
            ip: r.header.ip,
            icount: r.header.icount,
            count: r.data.first_chunk().map(|bytes| u32::from_le_bytes(*bytes).into()),
        })
        .collect();
    let state: Vec<(bool, u64, u64)> = (probes.programs().iter())
        .flat_map(|program| program.points.iter().map(|p| (p.enabled, p.hits, p.ignored)))
        .collect();
    let lost = probes.channels().counts().lost();
    ids.iter().for_each(|&id| probes.remove(world.core_mut(), id));
    if plain != probed {
        return Some(format!("the machine: {plain:?}\n{probed:?}"));
    }
    if found != model.records || lost > 0 {
        return Some(format!("records: {:#x?}\nby the model {:#x?}\n{events:#x?}", found, model.records));
    }
    (state != model.state())
        .then(|| format!("state: {state:?}\nby the model {:?}\n{events:#x?}", model.state()))
}

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

#[test]
fn hits_are_what_the_manual_says() {
    let (from, cases) = (number("TRAPLINE_HIT_LIFE_FROM", 1), number("TRAPLINE_HIT_LIFE", CASES));
    let mut worlds = [World::new(3), World::new(0)];
    for seed in from..from + cases {
        let ring = if seed % 2 == 0 { 0 } else { 3 };
        let world = &mut worlds[usize::from(ring == 0)];
        let (case, first) = case(seed, ring);
        if let Some(how) = differs(world, &case, &first, (seed % 5) as u16) {
            let script = &case.script;
            panic!("seed {seed}, ring {ring}: {:02x?}\n{first:#x?}\n{script:#x?}\n{how}", case.code);
        }
    }
}
