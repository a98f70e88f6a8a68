//! A flame graph in a browser: Chromium draws it without a window, and the picture has each frame with its colour and its name.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::read::ZlibDecoder;
use tempfile::TempDir;

use super::ok;
use trapline_tests::guest;

/// The pixels of a picture, three bytes each.
struct Picture {
    width: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// Reads a PNG of 8 bits a sample, in colour, not interlaced.
    fn read(file: &[u8]) -> Self {
        assert_eq!(file[..8], *b"\x89PNG\r\n\x1a\n");
        let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap()) as usize;
        let (width, height) = (number(16), number(20));
        let size = match file[24..29] {
            [8, 2, 0, 0, 0] => 3,
            [8, 6, 0, 0, 0] => 4,
            ref other => panic!("a PNG of another form: {other:?}"),
        };
        let (mut packed, mut at) = (Vec::new(), 8);
        while at < file.len() {
            let length = number(at);
            if file[at + 4..at + 8] == *b"IDAT" {
                packed.extend_from_slice(&file[at + 8..at + 8 + length]);
            }
            at += length + 12;
        }
        let mut bytes = Vec::new();
        ZlibDecoder::new(&*packed).read_to_end(&mut bytes).unwrap();
        let row = width * size;
        assert_eq!(bytes.len(), height * (row + 1));
        let mut above = vec![0; row];
        let mut pixels = Vec::new();
        for line in bytes.chunks_exact(row + 1) {
            let mut now = line[1..].to_vec();
            for n in 0..row {
                let (left, corner) = if n < size { (0, 0) } else { (now[n - size], above[n - size]) };
                now[n] = now[n].wrapping_add(predicted(line[0], left, above[n], corner));
            }
            pixels.extend(now.chunks_exact(size).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
            above = now;
        }
        Self { width, pixels }
    }

    /// The pixels of a rectangle without its edge.
    fn within(&self, frame: &Frame) -> Vec<[u8; 3]> {
        let (left, right) = (frame.x.ceil() as usize + 1, (frame.x + frame.width) as usize - 1);
        let lines = frame.y as usize + 1..(frame.y + frame.height) as usize - 1;
        lines.flat_map(|y| self.pixels[y * self.width + left..y * self.width + right].to_vec()).collect()
    }
}

/// What a filter of PNG adds (ISO/IEC 15948, 9).
fn predicted(filter: u8, left: u8, above: u8, corner: u8) -> u8 {
    let [a, b, c] = [left, above, corner].map(i32::from);
    match filter {
        0 => 0,
        1 => left,
        2 => above,
        3 => ((a + b) / 2) as u8,
        4 => {
            let far = [a, b, c].map(|one| (a + b - c - one).abs());
            if far[0] <= far[1] && far[0] <= far[2] {
                left
            } else if far[1] <= far[2] {
                above
            } else {
                corner
            }
        }
        other => panic!("no filter {other}"),
    }
}

/// A frame as the file has it.
struct Frame {
    name: String,
    text: String,
    x: f64,
    y: f64,
    width: f64,
    height: f64,
    fill: [u8; 3],
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no {before} in {text}")).1;
    rest.split_once(after).unwrap().0
}

fn frames(svg: &str) -> Vec<Frame> {
    let frame = |part: &str| {
        let number = |name: &str| {
            let rect = between(part, "<rect ", "/>");
            between(rect, &format!("{name}=\""), "\"").parse::<f64>().unwrap()
        };
        let fill = between(part, "fill=\"rgb(", ")").split(',').map(|one| one.parse().unwrap());
        let fill: Vec<u8> = fill.collect();
        Frame {
            name: between(part, "data-name=\"", "\"").to_owned(),
            text: between(&part[part.find("<text").unwrap()..], ">", "</text>").to_owned(),
            x: number("x"),
            y: number("y"),
            width: number("width"),
            height: number("height"),
            fill: fill.try_into().unwrap(),
        }
    };
    svg.split("<g class=\"frame\"").skip(1).map(frame).collect()
}

/// The picture that Chromium makes of a file.
fn drawn(folder: &Path, file: &str, (width, height): (u32, u32)) -> Picture {
    let mut chromium = Command::new("chromium");
    chromium.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-device-scale-factor=1",
    ]);
    chromium.arg(format!("--user-data-dir={}", folder.join("profile").display()));
    chromium.arg(format!("--window-size={width},{height}"));
    chromium.arg(format!("--screenshot={}", folder.join("picture.png").display()));
    chromium.arg(format!("file://{}", folder.join(file).display()));
    let output = chromium.stdin(Stdio::null()).output();
    let output =
        output.unwrap_or_else(|error| panic!("chromium: {error}; install it: sudo apt-get install chromium"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Picture::read(&std::fs::read(folder.join("picture.png")).unwrap())
}

#[test]
fn guest_linux_chromium_draws_the_frames_of_a_boot_with_their_names_at_length() {
    trapline_tests::turns::take().unwrap();
    let folder = TempDir::new().unwrap();
    let (kernel, initrd) = (guest("linux-cloud-amd64"), guest("initramfs-amd64.cpio.gz"));
    let words = [
        "profile", &kernel, "--insns", "100003", "-q", "-o", "boot.svg", "--", "--initrd", &initrd,
        "--until", "/ # ",
    ];
    ok(folder.path(), &words);
    let svg = std::fs::read_to_string(folder.path().join("boot.svg")).unwrap();
    let size = |name: &str| -> u32 { between(&svg, &format!(" {name}=\""), "\"").parse().unwrap() };
    let picture = drawn(folder.path(), "boot.svg", (size("width"), size("height")));
    // `TRAPLINE_PICTURE=FILE` keeps the picture, for a person.
    if let Some(kept) = std::env::var_os("TRAPLINE_PICTURE") {
        std::fs::copy(folder.path().join("picture.png"), kept).unwrap();
    }
    assert_eq!(picture.width, size("width") as usize);
    let (mut named, mut bare) = (0, 0);
    for frame in frames(&svg).iter().filter(|frame| frame.width > 8.0) {
        let pixels = picture.within(frame);
        let own = pixels.iter().filter(|pixel| **pixel == frame.fill).count();
        let dark = pixels.iter().filter(|pixel| pixel.iter().all(|value| *value < 100)).count();
        let share = own as f64 / pixels.len() as f64;
        if frame.text.is_empty() {
            assert!(share > 0.99 && dark == 0, "{}: {share}, {dark} dark pixels", frame.name);
            bare += 1;
        } else {
            // A character has a few black pixels, and leaves most of the frame as it is.
            let characters = frame.text.chars().filter(|c| !matches!(c, ' ' | '.' | '_')).count();
            assert!(share > 0.3, "{}: {share} of the frame has its colour", frame.name);
            assert!(dark >= 2 * characters, "{}: {dark} dark pixels for {}", frame.name, frame.text);
            named += 1;
        }
    }
    assert!(named >= 30 && bare >= 5, "{named} frames with names, {bare} without");
    assert!(frames(&svg).iter().any(|frame| frame.text == "vmlinux`kthread"));
}
