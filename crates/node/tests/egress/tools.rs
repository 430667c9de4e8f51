//! The tools that people use, behind a list, against servers of this machine.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mini_ork_testkit::{skip, wait_for};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

use crate::confined::Boxed;
use crate::support::{Server, Zone};

const PYTHON: &str = "/usr/bin/python3";

/// Files over HTTPS, for a certificate that only the test's own authority vouches for.
struct Files {
    server: Child,
    port: u16,
}

impl Files {
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own")]
    fn serve(directory: &Path, authority: &Path) -> Self {
        let mut issuer = CertificateParams::new(Vec::new()).unwrap();
        issuer.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        issuer.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let name = (DnType::CommonName, "an authority of a test");
        issuer.distinguished_name.push(name.0, name.1);
        let issuer = CertifiedIssuer::self_signed(issuer, KeyPair::generate().unwrap()).unwrap();
        fs_err::write(authority, issuer.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["tools.test".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &issuer).unwrap();
        let chain = directory.with_extension("pem");
        let pem = format!("{}{}", key.serialize_pem(), certificate.pem());
        fs_err::write(&chain, pem).unwrap();
        let told = directory.with_extension("port");
        let program = "import http.server, os, ssl, sys\n\
            server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n\
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
            context.load_cert_chain(sys.argv[1])\n\
            server.socket = context.wrap_socket(server.socket, server_side=True)\n\
            open(sys.argv[2] + '.new', 'w').write(str(server.server_address[1]))\n\
            os.rename(sys.argv[2] + '.new', sys.argv[2])\n\
            server.serve_forever()\n";
        let server = Command::new(PYTHON)
            .args(["-c", program])
            .args([&chain, &told])
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("server", Duration::from_secs(30), || told.exists());
        let port = fs_err::read_to_string(&told).unwrap().parse().unwrap();
        Self { server, port }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What the server has: a repository, an index of Python packages, one of Node's and one of
/// cargo's. The port is known only later, so that addresses in files are relative or put in then.
const CONTENT: &str = r#"
set -e
git init -q -b main source
git -C source -c user.name=a -c user.email=a@b commit -q --allow-empty -m first
git clone -q --bare source repo.git
git -C repo.git update-server-info
mkdir -p simple/demo
echo '<a href="demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>' > simple/demo/index.html
/usr/bin/python3 - <<'END'
import zipfile
with zipfile.ZipFile('simple/demo/demo-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('demo.py', '')
    wheel.writestr('demo-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n')
    wheel.writestr('demo-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nTag: py3-none-any\n')
    wheel.writestr('demo-1.0.dist-info/RECORD', '')
END
echo '{"name":"demo","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"demo","version":"1.0.0","description":"it works"}}}' > demo
mkdir -p index/de/mo crates demo-1.0.0/src
printf '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2021"\n' > demo-1.0.0/Cargo.toml
touch demo-1.0.0/src/lib.rs
tar -czf crates/demo-1.0.0.crate demo-1.0.0
digest=$(sha256sum crates/demo-1.0.0.crate | cut -d' ' -f1)
echo "{\"name\":\"demo\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"$digest\",\"features\":{},\"yanked\":false}" > index/de/mo/demo
"#;

#[expect(clippy::disallowed_methods, reason = "a preparation of the test's own")]
fn prepare(directory: &Path) -> bool {
    fs_err::create_dir(directory).unwrap();
    let prepared = Command::new("/bin/sh")
        .args(["-c", CONTENT])
        .current_dir(directory)
        .env("HOME", directory)
        .status();
    prepared.is_ok_and(|status| status.success())
}

/// A variable of whoever runs the tests: tools may lie in somebody's home.
#[expect(clippy::disallowed_methods, reason = "where tools lie on this machine")]
fn ambient(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What tools that lie in somebody's home need, as a piece of a script.
fn tool_variables() -> String {
    let home = ambient("HOME").unwrap_or_default();
    let of = |name: &str, below: &str| ambient(name).unwrap_or_else(|| format!("{home}/{below}"));
    format!(
        "export PATH='{}' RUSTUP_HOME='{}' PYENV_ROOT='{}'; ",
        ambient("PATH").unwrap_or_default(),
        of("RUSTUP_HOME", ".rustup"),
        of("PYENV_ROOT", ".pyenv"),
    )
}

fn found(name: &str) -> Option<PathBuf> {
    let path = ambient("PATH")?;
    let mut places = std::env::split_paths(&path).map(|place| place.join(name));
    places.find(|place| place.is_file())
}

#[test]
fn bc_41_git_curl_pip_npm_and_cargo_reach_what_is_allowed() {
    if !Path::new(PYTHON).exists() {
        return skip("no python3 here");
    }
    let zone = Zone::of(&[("tools.test", &["127.0.0.1"])]);
    let place = tempfile::tempdir().unwrap();
    let (content, authority) = (
        place.path().join("content"),
        place.path().join("authority.pem"),
    );
    if !prepare(&content) {
        return skip("git or tar is missing");
    }
    let files = Files::serve(&content, &authority);
    let port = files.port;
    let base = format!("https://tools.test:{port}");
    let config = format!(r#"{{"dl":"{base}/crates/{{crate}}-{{version}}.crate"}}"#);
    fs_err::write(content.join("index/config.json"), config).unwrap();
    let entries = [format!("tools.test:{port}"), format!("127.0.0.1:{port}")];
    let boxed = Boxed::new(&entries, &zone);
    fs_err::copy(&authority, boxed.work().join("ca.pem")).unwrap();
    let mut script = tool_variables();
    script += &format!(
        "export HOME=$PWD CA=$PWD/ca.pem; \
         export GIT_SSL_CAINFO=$CA CURL_CA_BUNDLE=$CA PIP_CERT=$CA npm_config_cafile=$CA \
            CARGO_HTTP_CAINFO=$CA PIP_DISABLE_PIP_VERSION_CHECK=1 NO_UPDATE_NOTIFIER=1; \
         direct() {{ env -u HTTP_PROXY -u http_proxy -u HTTPS_PROXY -u https_proxy -u ALL_PROXY -u all_proxy \"$@\"; }}; \
         try() {{ name=$1; shift; \"$@\" > out 2>&1 && echo \"$name works\" || {{ echo \"$name failed\"; cat out; }}; }}; \
         try curl curl -sSf {base}/demo; try curl-direct direct curl -sSf {base}/demo; \
         try git git clone -q {base}/repo.git one; try git-direct direct git clone -q {base}/repo.git two; \
         curl -sS https://other.test/ > out 2>&1 || grep -o 403 out | head -n 1; "
    );
    let mut expected = vec![
        "curl works",
        "curl-direct works",
        "git works",
        "git-direct works",
        "403",
    ];
    if let Some(pip) = found("pip") {
        script += &format!(
            "try pip {} download -q --no-deps --index-url {base}/simple/ demo; ",
            pip.display()
        );
        expected.push("pip works");
    }
    if let Some(npm) = found("npm") {
        script += &format!(
            "try npm {} view demo description --registry {base}/; ",
            npm.display()
        );
        expected.push("npm works");
    }
    if let Some(cargo) = found("cargo") {
        script += &format!(
            "mkdir -p app/src; touch app/src/lib.rs; \
             printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\ndemo = {{ version = \"1\", registry = \"own\" }}\\n' > app/Cargo.toml; \
             export CARGO_REGISTRIES_OWN_INDEX=sparse+{base}/index/; \
             try cargo {} fetch --manifest-path app/Cargo.toml; ",
            cargo.display()
        );
        expected.push("cargo works");
    }
    let Some(said) = boxed.run(&script) else {
        return;
    };
    let lines: Vec<&str> = said.lines().collect();
    expected.push("ended 0");
    assert_eq!(lines, expected, "{said}");
    let denials = boxed.denials();
    let mut denied = denials.iter().filter(|denial| denial.place.contains(':'));
    assert_eq!(denied.next().unwrap().place, "other.test:443");
    assert_eq!(denied.next(), None, "{denials:?}");
}

#[test]
fn ssh_and_psql_reach_their_own_ports() {
    let ssh = Server::echo(b"SSH-2.0-test\r\n");
    let database = Server::echo(b"");
    let zone = Zone::of(&[("own.test", &["127.0.0.1"])]);
    let ports = [ssh.port(), database.port()];
    let mut entries = Vec::new();
    for port in ports {
        entries.push(format!("own.test:{port}"));
        entries.push(format!("{}:{port}", Ipv4Addr::LOCALHOST));
    }
    let boxed = Boxed::new(&entries, &zone);
    let [ssh_port, database_port] = ports;
    let script = format!(
        "export HOME=$PWD; \
         timeout 20 git ls-remote ssh://git@own.test:{ssh_port}/x > /dev/null 2>&1; \
         PGCONNECT_TIMEOUT=5 timeout 20 psql 'host=own.test port={database_port} user=a dbname=b sslmode=prefer' -c 'select 1' > /dev/null 2>&1; true"
    );
    if boxed.run(&script).is_none() {
        return;
    }
    if found("ssh").is_some() {
        assert!(ssh.got().starts_with("SSH-2.0-"), "{:?}", ssh.got());
    } else {
        skip("no ssh here");
    }
    if found("psql").is_some() {
        let request = [0, 0, 0, 8, 4, 210, 22, 47];
        let got = database.received.lock().unwrap().clone();
        assert!(got.starts_with(&request), "{got:?}");
    } else {
        skip("no psql here");
    }
    assert!(boxed.denials().is_empty(), "{:?}", boxed.denials());
}
