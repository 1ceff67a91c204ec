// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the bytes of a line to what they say.

use std::collections::BTreeMap;

use turnstile_link::{Decoder, Item, Up, UpLink};

use super::heard::Heard;

/// Turns the bytes of the line into what they say.
pub struct Listener {
    /// `None`: the line carries no frames.
    decoder: Option<Decoder<UpLink>>,
    /// The begun character at the end of what each VM wrote.
    begun: BTreeMap<u8, Vec<u8>>,
}

impl Listener {
    /// Listens to a line with or without frames.
    pub fn new(framed: bool) -> Self {
        Listener { decoder: framed.then(Decoder::new), begun: BTreeMap::new() }
    }

    /// Takes bytes; runs of text, and what one VM writes without a break, come out as one. A character of UTF-8
    /// stays whole.
    pub fn hear(&mut self, bytes: &[u8]) -> Vec<Heard> {
        let Some(decoder) = &mut self.decoder else {
            return vec![Heard::Text { text: bytes.to_vec() }];
        };
        let mut heard = Vec::new();
        for &byte in bytes {
            match decoder.push(byte) {
                None => {}
                Some(Item::Text(byte)) => match heard.last_mut() {
                    Some(Heard::Text { text }) => text.push(byte),
                    _ => heard.push(Heard::Text { text: vec![byte] }),
                },
                Some(Item::Message(Up::Console { vm, bytes })) => match heard.last_mut() {
                    Some(Heard::Console { vm: last, text }) if *last == vm => text.extend_from_slice(bytes),
                    _ => heard.push(Heard::Console { vm, text: bytes.to_vec() }),
                },
                Some(Item::Message(message)) => heard.push(message.into()),
            }
        }
        let mut whole = Vec::new();
        for heard in heard {
            self.keep_whole(heard, &mut whole);
        }
        whole
    }

    /// Keeps a character back whose end is still to come.
    fn keep_whole(&mut self, heard: Heard, whole: &mut Vec<Heard>) {
        match heard {
            Heard::Console { vm, text: more } => {
                let mut text = self.begun.remove(&vm).unwrap_or_default();
                text.extend(more);
                let begun = text.split_off(text.len() - begun_at_end(&text));
                if !begun.is_empty() {
                    self.begun.insert(vm, begun);
                }
                if !text.is_empty() {
                    whole.push(Heard::Console { vm, text });
                }
                return;
            }
            // A VM that has stopped does not end it.
            Heard::Stopped { vm, .. } | Heard::Crashed { vm, .. } => {
                let begun = self.begun.remove(&vm);
                whole.extend(begun.map(|text| Heard::Console { vm, text }));
            }
            Heard::Done { .. } | Heard::Fault { .. } => whole.extend(self.finish()),
            _ => {}
        }
        whole.push(heard);
    }

    /// What was kept back, when nothing more comes.
    pub fn finish(&mut self) -> Vec<Heard> {
        let begun = std::mem::take(&mut self.begun);
        begun.into_iter().map(|(vm, text)| Heard::Console { vm, text }).collect()
    }

    /// How many frames were damaged or unknown.
    pub fn lost(&self) -> u32 {
        self.decoder.as_ref().map_or(0, |decoder| decoder.damaged() + decoder.unknown())
    }
}

/// How many bytes at the end of `text` begin a character of UTF-8 and do not end it.
fn begun_at_end(text: &[u8]) -> usize {
    for (index, &byte) in text.iter().rev().take(3).enumerate() {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        return if length > index + 1 { index + 1 } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_separates_text_from_messages() {
        let mut line = b"boot\n".to_vec();
        turnstile_link::send(&Up::Console { vm: 1, bytes: b"hi" }, |frame| line.extend_from_slice(frame))
            .unwrap();
        line.extend_from_slice(b"panic");
        let heard = Listener::new(true).hear(&line);
        assert_eq!(
            heard,
            [
                Heard::Text { text: b"boot\n".to_vec() },
                Heard::Console { vm: 1, text: b"hi".to_vec() },
                Heard::Text { text: b"panic".to_vec() },
            ]
        );
        assert_eq!(Listener::new(false).hear(&line), [Heard::Text { text: line }]);
    }

    #[test]
    fn listener_joins_what_one_vm_writes_and_keeps_characters_whole() {
        let mut listener = Listener::new(true);
        let mut hear = |vm, bytes: &[u8]| {
            let mut line = Vec::new();
            for byte in bytes {
                turnstile_link::send(&Up::Console { vm, bytes: &[*byte] }, |frame| {
                    line.extend_from_slice(frame)
                })
                .unwrap();
            }
            listener.hear(&line)
        };
        let console = |vm, text: &[u8]| Heard::Console { vm, text: text.to_vec() };
        assert_eq!(hear(0, b"a\xe2\x82"), [console(0, b"a")]);
        assert_eq!(hear(1, b"b\xff\x80"), [console(1, b"b\xff\x80")], "no character");
        assert_eq!(hear(0, b"\xacc\xc3"), [console(0, "€c".as_bytes())]);
        assert_eq!(listener.finish(), [console(0, b"\xc3")]);
    }
}
