// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mitigations on POWER by what the firmware says: a machine whose device tree has a POWER9's features gets what they ask for.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use turnstile::batch::{self, Transcript};
use turnstile::failure::{Context, Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::machine;
use turnstile::qemu::Boot;
use turnstile::setup::qemu::Qemu;

use super::programs;

const NAME: &str = "mitigations-power64";
/// What the firmware of a POWER9 says.
const ENABLED: [&str; 9] = [
    "inst-spec-barrier-ori31,31,0",
    "inst-l1d-flush-trig2",
    "fw-l1d-thread-split",
    "fw-count-cache-flush-bcctr2,0,0",
    "needs-count-cache-flush-on-context-switch",
    "speculation-policy-favor-security",
    "needs-l1d-flush-msr-pr-0-to-1",
    "needs-l1d-flush-msr-hv-1-to-0",
    "needs-spec-barrier-for-bound-checks",
];
/// What is done then, and what guests are told.
const DECIDED: &str = "each exit flushes link stack and count cache (bcctr 2,0,0), each entry the data cache (TRIG2), \
                       with barriers on both and behind bounds checks";
const TOLD: &str = "@characteristics 0x9840000000000000 0xe600000000000000";
/// Processor time, as a guard against hangs.
const LIMIT: Duration = Duration::from_secs(200);
/// For QEMU to begin, on a busy computer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the self-test on a machine whose device tree says what a POWER9's firmware says.
pub fn firmware(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let config = programs::selftest(Isa::Power64, "", "64MiB", "vcpus = 1").config;
    let (mut boot, _) = machine::prepare_text(layout, NAME, &config)?;
    boot.counted = true;
    let folder = layout.bundles().join(NAME);
    let file = folder.join("machine.dtb");
    let mut tree = device_tree(&boot, qemu, &folder, &file)?;
    add_features(&mut tree, &ENABLED).ok_or_else(|| Failure::failed("QEMU's device tree has no ibm,opal"))?;
    fs::write(&file, tree).context(|| format!("cannot write {}", file.display()))?;
    boot.dtb = Some(file);
    let transcript = batch::run(&boot, &qemu.path, LIMIT, |_| {})?;
    judge(&transcript).map_err(|what| Failure::failed(what).details(transcript.all()))
}

fn judge(transcript: &Transcript) -> std::result::Result<(), String> {
    if transcript.done != Some(0) || !transcript.text.contains(DECIDED) {
        return Err(format!("the hypervisor did not say \"{DECIDED}\", or did not end in order"));
    }
    if !transcript.lines().any(|line| line.contains(" failed=0")) {
        return Err("the guest did not report failed=0".to_owned());
    }
    match transcript.lines().any(|line| line.contains(TOLD)) {
        true => Ok(()),
        false => Err(format!("the guest was not told {TOLD}")),
    }
}

/// Returns the device tree that QEMU makes for this machine: its monitor writes it.
fn device_tree(boot: &Boot, qemu: &Qemu, folder: &Path, file: &Path) -> Result<Vec<u8>> {
    let socket = folder.join("monitor");
    // What an earlier run has left.
    let _ = (fs::remove_file(&socket), fs::remove_file(file));
    let monitor = format!("unix:{},server=on,wait=off", socket.display());
    let mut child = Command::new(&qemu.path)
        .args(boot.arguments())
        .args(["-S", "-monitor", &monitor])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context(|| format!("cannot start {}", qemu.path.display()))?;
    let asked = ask(&socket, &format!("dumpdtb {}\nquit\n", file.display()));
    if asked.is_err() {
        let _ = child.kill();
    }
    child.wait().context(|| "cannot wait for QEMU".to_owned())?;
    asked?;
    fs::read(file).context(|| format!("QEMU wrote no {}", file.display()))
}

/// Gives QEMU's monitor commands, as soon as it listens.
fn ask(socket: &Path, commands: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        match UnixStream::connect(socket) {
            Ok(mut monitor) => {
                monitor
                    .write_all(commands.as_bytes())
                    .context(|| "cannot speak to QEMU's monitor".to_owned())?;
                // Until it ends: it drops what it has not read when its partner goes.
                let _ = std::io::copy(&mut monitor, &mut std::io::sink());
                return Ok(());
            }
            Err(error) if begin.elapsed() > PATIENCE => {
                return Err(Failure::failed(format!("QEMU's monitor is not there: {error}")));
            }
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Tokens of a device tree's structure (Devicetree Specification 0.4, 5.4.1).
const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;

fn word(tree: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_be_bytes(tree.get(at..at + 4)?.try_into().ok()?) as usize)
}

/// Adds a node `fw-features` to `/ibm,opal`, in which these are enabled. `None` if there is no such node, or strings do not follow the
/// structure.
fn add_features(tree: &mut Vec<u8>, enabled: &[&str]) -> Option<()> {
    let (structure, strings) = (word(tree, 8)?, word(tree, 12)?);
    let end = end_of_node(tree, structure, "ibm,opal")?;
    let (size, name) = (word(tree, 36)?, word(tree, 32)?);
    if structure + size > strings {
        return None;
    }
    let mut node = Vec::new();
    let begin = |node: &mut Vec<u8>, name: &str| {
        node.extend(BEGIN_NODE.to_be_bytes());
        node.extend(name.bytes().chain([0]));
        node.resize(node.len().next_multiple_of(4), 0);
    };
    begin(&mut node, "fw-features");
    for feature in enabled {
        begin(&mut node, feature);
        for token in [PROPERTY, 0, name as u32, END_NODE] {
            node.extend(token.to_be_bytes());
        }
    }
    node.extend(END_NODE.to_be_bytes());
    let strings_end = strings + name;
    tree.splice(strings_end..strings_end, b"enabled\0".iter().copied());
    let added = node.len();
    tree.splice(end..end, node);
    for (at, more) in [(4, added + 8), (12, added), (32, 8), (36, added)] {
        let value = (word(tree, at)? + more) as u32;
        tree.get_mut(at..at + 4)?.copy_from_slice(&value.to_be_bytes());
    }
    Some(())
}

/// Returns where the first node with a name ends.
fn end_of_node(tree: &[u8], structure: usize, name: &str) -> Option<usize> {
    let (mut at, mut depth, mut inside) = (structure, 0, None);
    loop {
        match word(tree, at)? as u32 {
            BEGIN_NODE => {
                depth += 1;
                let rest = tree.get(at + 4..)?;
                let length = rest.iter().position(|byte| *byte == 0)?;
                if inside.is_none() && rest.get(..length)? == name.as_bytes() {
                    inside = Some(depth);
                }
                at = (at + 4 + length + 1).next_multiple_of(4);
            }
            END_NODE if inside == Some(depth) => return Some(at),
            END_NODE => (at, depth) = (at + 4, depth - 1),
            PROPERTY => at = (at + 12 + word(tree, at + 4)?).next_multiple_of(4),
            // NOP; the structure's end is followed by strings, in which no node is found.
            4 => at += 4,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_added_to_a_tree() {
        // Structure at 64: root, ibm,opal with a property, and its end; strings behind.
        let mut structure = vec![1u32, 0, 1];
        structure.extend(b"ibm,opal\0\0\0\0".as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word)));
        structure.extend([3, 4, 0, 7, 2, 2, 9]);
        let size = 4 * structure.len() as u32;
        let header = [0xd00d_feed, 64 + size + 4, 64, 64 + size, 48, 17, 16, 0, 4, size];
        let words = header.into_iter().chain([0; 6]).chain(structure);
        let mut tree: Vec<u8> = words.flat_map(u32::to_be_bytes).chain(*b"old\0").collect();
        add_features(&mut tree, &["a-feature"]).unwrap();
        let [total, structure, strings] = [4, 8, 12].map(|at| word(&tree, at).unwrap());
        assert_eq!((tree.len(), structure), (total, 64));
        assert_eq!(&tree[strings..], b"old\0enabled\0");
        let end = end_of_node(&tree, structure, "a-feature").unwrap();
        assert_eq!([word(&tree, end - 12), word(&tree, end - 4)], [Some(3), Some(4)], "its property's name");
        assert!(end_of_node(&tree, structure, "ibm,opal").unwrap() > end);
    }

    #[test]
    fn what_happened_is_judged() {
        let said = |text: &str, console: &str| {
            let consoles = vec![console.to_owned()];
            judge(&Transcript { text: text.to_owned(), consoles, done: Some(0), ..Transcript::default() })
        };
        let console = format!("{TOLD}\r\n@done passed=4 failed=0 skipped=1\r\n");
        assert_eq!(said(DECIDED, &console), Ok(()));
        assert!(said("", &console).is_err());
        assert!(said(DECIDED, &console.replace("failed=0", "failed=1")).is_err());
        assert!(said(DECIDED, &console.replace("0x98", "0x90")).is_err());
    }
}
