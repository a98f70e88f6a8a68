//! Near misses: the known name that the user probably meant.

/// The best near miss of `name` among `known`, if one is close enough to be a typing error.
#[must_use]
pub fn near_miss<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let (length, letters) = length_and_letters(&name);
    let allowed: u32 = match length {
        0..=2 => 1,
        3..=5 => 2,
        _ => 3,
    };
    // An edit changes the length by at most one, and removes or adds one letter.
    let may_be_near = |k: &str| {
        let (its_length, its_letters) = length_and_letters(k);
        k.len() <= 64
            && its_length.abs_diff(length) <= allowed
            && (its_letters & !letters).count_ones() <= allowed
            && (letters & !its_letters).count_ones() <= allowed
    };
    known
        .filter(|k| may_be_near(k))
        .map(|k| (strsim::damerau_levenshtein(&name, &k.to_ascii_lowercase()), k))
        .filter(|(d, k)| *d <= allowed as usize && *d < k.chars().count())
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// The number of characters of a name, and a set of its ASCII characters by their low five bits, which are the same in
/// both cases of a letter.
fn length_and_letters(name: &str) -> (u32, u32) {
    name.bytes().fold((0, 0), |(length, letters), byte| match byte {
        0..0x80 => (length + 1, letters | 1 << (byte & 31)),
        // Each character has exactly one byte that is not a continuation byte.
        _ => (length + u32::from(byte >= 0xc0), letters),
    })
}

#[cfg(test)]
mod tests {
    use super::near_miss;
    use crate::instructions::{TABLE, mnemonic_of};

    /// The definition, without short cuts: the nearest of all names.
    fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
        let allowed = [1, 1, 1, 2, 2, 2].get(name.chars().count()).copied().unwrap_or(3);
        let far = |k: &str| strsim::damerau_levenshtein(&name.to_ascii_lowercase(), &k.to_ascii_lowercase());
        let near = known.iter().filter(|k| far(k) <= allowed && far(k) < k.chars().count());
        near.copied().min_by_key(|k| far(k))
    }

    #[test]
    fn the_filter_drops_no_near_miss() {
        let known: Vec<&str> =
            TABLE.iter().map(|row| mnemonic_of(row.form)).chain(["größe", "gröse", "GRÖSSE", "π"]).collect();
        let mut found = 0;
        for word in &known {
            for cut in 0..=word.chars().count() {
                let (head, tail): (String, String) =
                    (word.chars().take(cut).collect(), word.chars().skip(cut).collect());
                let shorter: String = tail.chars().skip(1).collect();
                for name in [
                    format!("{tail}{head}"),
                    format!("{head}X{tail}"),
                    format!("{head}é{shorter}"),
                    head + &shorter,
                ] {
                    let near = near_miss(&name, known.iter().copied());
                    assert_eq!(near, nearest(&name, &known), "{name}");
                    found += u32::from(near.is_some());
                }
            }
        }
        assert!(found > 500, "{found}");
    }
}
