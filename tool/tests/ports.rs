// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Named ports, with a stand-in for QEMU whose guests welcome who comes, and tell them when the machine is powered off.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Folder, fake_qemu};
use turnstile_service::image::{AARCH64, Header, PAGE};

const PATIENCE: Duration = Duration::from_secs(20);

/// A machine with a port, whose process's number is known before the tool runs in it.
struct Machine {
    folder: Folder,
    process: Child,
    number: String,
}

impl Machine {
    fn new() -> Self {
        let folder = Folder::with_vms(&["one"]);
        let text = fs::read_to_string(folder.path().join("m.toml")).unwrap();
        folder.write("m.toml", format!("{text}ports = [\"agent\"]\n").as_bytes());
        let tool = package(folder.path());
        let script = format!(
            "echo $$; read go; exec {} run m.toml --image h --qemu {}",
            tool.display(),
            fake_qemu().display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir(folder.path()).env_remove("TURNSTILE_ROOT");
        command.env("XDG_RUNTIME_DIR", folder.path()).env("XDG_STATE_HOME", folder.path());
        command.env("FAKE_QEMU", "echo");
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut number = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut number).unwrap();
        Self { folder, process, number: number.trim_end().to_owned() }
    }

    /// Where its sockets are.
    fn place(&self, ending: &str) -> PathBuf {
        self.folder.path().join(format!("turnstile/m-{}.{ending}", self.number))
    }

    /// Lets the tool begin.
    fn start(&mut self) {
        self.process.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Returns what the tool says until the machine is there.
    fn said(&mut self) -> String {
        let mut said = String::new();
        let mut lines = BufReader::new(self.process.stderr.as_mut().unwrap());
        while !said.contains("a stand-in") {
            assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
        }
        said
    }

    /// Ends it, as from the terminal.
    fn end(&mut self) {
        assert!(Command::new("kill").arg(&self.number).status().unwrap().success());
        self.process.wait().unwrap();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes a package of the tool: what its service does is no matter to the stand-in.
fn package(folder: &Path) -> PathBuf {
    let (tool, program) = (folder.join("bin/turnstile"), assert_cmd::cargo::cargo_bin!("turnstile"));
    let services = folder.join("share/turnstile/images/services/arm64");
    fs::create_dir_all(tool.parent().unwrap()).unwrap();
    fs::create_dir_all(&services).unwrap();
    let header =
        Header { isa: AARCH64, entry: 0x20, code: PAGE, data: PAGE, stack: PAGE, ..Header::default() };
    let mut service = header.bytes().to_vec();
    service.resize((PAGE + header.file()) as usize, 0);
    fs::write(services.join("ports.service"), service).unwrap();
    fs::hard_link(program, &tool).or_else(|_| fs::copy(program, &tool).map(|_| ())).unwrap();
    tool
}

/// Goes to a port that is about to be there.
fn connect(path: &Path) -> UnixStream {
    let begin = Instant::now();
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            return stream;
        }
        assert!(begin.elapsed() < PATIENCE, "{} is not there", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_guests_write_until_the_machine_is_powered_off_reaches_who_is_there() {
    let mut machine = Machine::new();
    machine.start();
    let mut stream = connect(&machine.place("ports/one.agent"));
    let mut said = [0; 8];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(said, *b"welcome\n");
    machine.end();
    let mut last = String::new();
    stream.read_to_string(&mut last).unwrap();
    assert_eq!(last, "goodbye\n");
    assert!(!machine.place("ports").exists());
}

/// In a container others may have the same process number, and the same folder of sockets.
#[test]
fn ports_are_not_taken_from_a_machine_of_the_same_name() {
    let mut machine = Machine::new();
    let (socket, port) = (machine.place("sock"), machine.place("ports/one.agent"));
    fs::create_dir_all(port.parent().unwrap()).unwrap();
    let [_control, other] = [&socket, &port].map(|path| UnixListener::bind(path).unwrap());
    machine.start();
    let said = machine.said();
    assert!(said.contains("so there are no sockets of its ports either"), "{said}");
    let client = connect(&port);
    other.set_nonblocking(true).unwrap();
    assert!(other.accept().is_ok(), "it is the other machine's still");
    drop(client);
    machine.end();
    assert!(socket.exists() && port.exists());
}
