//! Names of files as text and back. A name is bytes, and need not be UTF-8: each byte that does not fit is written as
//! one character of its own, from the end of the last plane for private use, so that no two names become the same.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;

/// Stands for byte 0x80; the character for 0xff is the last one there is. Smaller bytes are always valid UTF-8.
const FIRST: u32 = 0x10_ff80;
/// The first byte of each of those characters in UTF-8.
const LEAD: u8 = 0xf4;

fn byte(c: char) -> Option<u8> {
    u32::from(c).checked_sub(FIRST).and_then(|above| u8::try_from(above + 0x80).ok())
}

fn character(byte: u8) -> Option<char> {
    u32::from(byte).checked_sub(0x80).and_then(|above| char::from_u32(FIRST + above))
}

/// Whether this text stands for a name that is not UTF-8.
pub(super) fn is_odd(text: &str) -> bool {
    // Nearly every name is spared the second pass: only the last planes begin with this byte, and a byte is found fast.
    text.as_bytes().contains(&LEAD) && text.chars().any(|c| byte(c).is_some())
}

/// A name as text.
pub(super) fn text(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(plain) if !is_odd(plain) => return Cow::Borrowed(plain),
        _ => {}
    }
    let mut text = String::with_capacity(name.len() * 2);
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Such a character would come back as the byte it stands for, so it is written byte by byte, too.
            if byte(c).is_some() {
                text.extend(c.encode_utf8(&mut [0; 4]).bytes().filter_map(character));
            } else {
                text.push(c);
            }
        }
        text.extend(chunk.invalid().iter().copied().filter_map(character));
    }
    Cow::Owned(text)
}

/// The file name that a text stands for.
pub(super) fn name(text: &str) -> Cow<'_, OsStr> {
    if !is_odd(text) {
        return Cow::Borrowed(OsStr::new(text));
    }
    let mut name = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte(c) {
            Some(byte) => name.push(byte),
            None => name.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Cow::Owned(OsString::from_vec(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn a_name_of_any_bytes_comes_back_as_it_was() {
        for bytes in [&b"r1.json"[..], "\u{e9}.json".as_bytes(), b"\xff\xfebad.json", "\u{10ff80}\u{10ffff}".as_bytes()]
        {
            assert_eq!(name(&text(bytes)).as_bytes(), bytes);
        }
        assert_eq!(text(b"r1.json"), "r1.json");
        assert!(text(b"\xff\xfebad.json").ends_with("bad.json"));
        for c in (0x80..=0xff).filter_map(character) {
            assert_eq!(c.encode_utf8(&mut [0; 4]).as_bytes()[0], LEAD);
        }
    }

    proptest! {
        #[test]
        fn no_two_names_become_the_same(bytes: Vec<u8>) {
            let text = text(&bytes);
            let name = name(&text);
            prop_assert_eq!(name.as_bytes(), &bytes[..]);
        }
    }
}
