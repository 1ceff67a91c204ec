// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A headless Chromium, driven by its DevTools protocol.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// Names the browser; `./x test --filter host/report` sets it.
const PROGRAM: &str = "TURNSTILE_CHROMIUM";
/// How long anything may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// It is to show a file: no network, nothing of the user's.
const FLAGS: [&str; 11] = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
];

/// A browser with one page.
pub struct Browser {
    process: Child,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    calls: u64,
    events: Vec<Value>,
    // Removed when the browser has ended.
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser with an empty page.
    pub fn start() -> Self {
        let program = std::env::var_os(PROGRAM)
            .unwrap_or_else(|| panic!("set {PROGRAM} to Chromium, or run ./x test --filter host/report"));
        let profile = TempDir::new().expect("a temporary folder");
        let mut command = Command::new(program);
        command.args(FLAGS).arg(format!("--user-data-dir={}", profile.path().display()));
        if rustix::process::geteuid().is_root() {
            // Its sandbox refuses to work for root.
            command.arg("--no-sandbox");
        }
        command.arg("about:blank").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("Chromium starts");
        let (port, path) = endpoint(profile.path());
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("Chromium listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket has a time-out");
        let url = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(url, stream).expect("Chromium speaks WebSocket");
        let mut browser =
            Browser { process, socket, session: None, calls: 0, events: Vec::new(), _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, file: &Path) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let message = self.read();
            self.events.push(message);
        }
    }

    /// Calls a method of the protocol.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let id = self.calls;
        let mut call = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        self.socket.send(Message::text(call.to_string())).expect("Chromium listens");
        loop {
            let message = self.read();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    /// The value of an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Makes the window so wide, in CSS pixels.
    pub fn width(&mut self, width: u32) {
        let mobile = width < 600;
        let metrics = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Prefers these colours: `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
    }

    /// What the page reported since it was opened, by the name of the event.
    pub fn events(&self, method: &str) -> Vec<&Value> {
        self.events.iter().filter(|event| event["method"] == method).collect()
    }

    fn read(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().expect("Chromium answers") {
                return serde_json::from_str(&text).expect("Chromium speaks JSON");
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Where the browser says it listens: a port and a path.
fn endpoint(profile: &Path) -> (u16, String) {
    let file = profile.join("DevToolsActivePort");
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        if let Some((port, path)) = text.split_once('\n') {
            return (port.parse().expect("a port"), path.trim().to_owned());
        }
        assert!(begin.elapsed() < PATIENCE, "Chromium does not say where it listens");
        std::thread::sleep(Duration::from_millis(20));
    }
}
