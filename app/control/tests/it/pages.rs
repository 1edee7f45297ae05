//! The login pages: the installation's name, errors, and links.

use http::{StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sallyport_api::Secret;
use sallyport_identity::LoginRequest;
use serde_json::{Value, json};

use crate::{
    fake_hook::path_of,
    fake_provider::FakeProvider,
    harness::{Api, HttpResponse},
    local::{Walk, form, set_password},
    login::{Browser, Shop, assert_page, parameters},
};

const EMAIL: &str = "ann@example.com";
const PASSWORD: &str = "blue bicycle on a hill";

/// Where the shop is.
fn url(shop: &Shop) -> String {
    format!("https://{}:8443/", shop.socket.dns_name)
}

/// The links of a page, without the installation's own.
pub(crate) fn ways(page: &HttpResponse) -> Vec<String> {
    let main = page.text.split("<main>").nth(1).unwrap();
    let hrefs = main.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap().replace("&amp;", "&"));
    hrefs.collect()
}

fn field<'a>(page: &'a HttpResponse, name: &str) -> &'a str {
    let field = page.text.split("<input").find(|field| field.contains(&format!("name=\"{name}\""))).unwrap();
    field.split('>').next().unwrap()
}

/// Whether the page shows the number of the status.
fn shows_status(page: &HttpResponse) -> bool {
    page.text.split("<footer>").nth(1).unwrap().starts_with(page.status.as_str())
}

#[tokio::test]
async fn pages_name_the_installation_and_link_to_the_start() {
    let shop = Shop::open().await;
    let mut browser = Browser::default();
    for path in ["/", "/nothing-here", "/account", "/logout", "/device", "/local/link?key=x"] {
        let page = browser.get(&shop.api, path).await;
        assert!(page.text.contains("</svg><a href=\"/\">localhost</a></header>"), "{path}: {}", page.text);
        assert!(page.text.contains(" - localhost</title>"), "{path}");
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.contains("style-src 'sha256-") && !policy.contains("unsafe"), "{path}: {policy}");
    }
    let lost = browser.get(&shop.api, "/nothing-here").await;
    assert!(lost.status == StatusCode::NOT_FOUND && shows_status(&lost) && ways(&lost) == ["/"], "{}", lost.text);
}

#[tokio::test]
async fn a_wrong_password_page_has_no_status_number_and_keeps_the_address() {
    let shop = Shop::open().await.with_local(json!({})).await;
    shop.active(EMAIL, PASSWORD).await;
    let mut walk = Walk::begin(&shop).await;
    let fresh = walk.show().await;
    assert!(field(&fresh, "email").contains("value=\"\"") && field(&fresh, "email").contains("autofocus"));
    for typed in [EMAIL, " Ann@Example.COM ", "nobody@\"><b>", &"x".repeat(254)] {
        let page = walk.password(typed, "a wrong password").await;
        assert_page(&page, 403, "role=\"alert\"><strong>The e-mail address or the password is wrong.</strong>");
        assert!(!shows_status(&page) && !page.text.contains("<b>"), "{}", page.text);
        let escaped = typed.trim().replace('"', "&quot;").replace('>', "&gt;").replace('<', "&lt;");
        let email = page.text.split("name=\"email\"").nth(1).unwrap();
        assert!(email.contains(&format!("value=\"{escaped}\"")), "{typed}: {}", page.text);
        assert!(field(&page, "password").contains("autofocus"), "{}", page.text);
        walk.shop.api.clock.pass(600);
        walk = Walk::begin(&shop).await;
    }
}

#[tokio::test]
async fn a_new_password_leads_to_the_services_that_let_the_person_in_and_to_no_other() {
    let shop = Shop::open().await.with_local(json!({})).await;
    let other = |name: &'static str, identity: Value| {
        let shop = &shop;
        async move {
            let socket = shop.api.socket(&shop.token, name).await;
            let url = format!("https://{}:8443/", socket.dns_name);
            let path = format!("/v1/sockets/{}", socket.id);
            let asks = json!({"identity": identity});
            assert_eq!(shop.api.send("PATCH", &path, Some(&shop.token), Some(asks)).await.status, StatusCode::OK);
            url
        }
    };
    other("secret", json!({"email_addresses": ["boss@example.com"]})).await;
    shop.api.socket(&shop.token, "open").await;
    let link = path_of(shop.invite(EMAIL).await.link.as_ref().map(Secret::expose).unwrap());
    let set = set_password(&shop.api, &link, PASSWORD).await;
    assert_page(&set, 200, "Your password is set");
    assert_eq!(ways(&set), [url(&shop)], "{}", set.text);

    let wiki = other("wiki", json!({"email_domains": ["example.com"]})).await;
    shop.invite("bob@example.com").await;
    let reset = shop.api.post(&format!("/v1/persons/{EMAIL}/reset"), Some(&shop.token), json!({})).await;
    let link = path_of(reset.json()["link"].as_str().unwrap());
    let set = set_password(&shop.api, &link, "another green bicycle").await;
    let mut both = [url(&shop), wiki];
    both.sort();
    assert_eq!(ways(&set), both, "{}", set.text);
}

#[tokio::test]
async fn the_account_page_has_a_login_and_lists_services() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    let page = browser.get(&shop.api, "/account").await;
    assert_page(&page, 403, "Nobody is logged in");
    assert!(!shows_status(&page) && page.text.contains("<form action=\"/sign-on\">"), "{}", page.text);
    // The form leads to an identity provider on another host.
    assert!(!page.header("content-security-policy").unwrap().contains("form-action"));
    assert!(field(&page, "to").contains("value=\"/account\"") && field(&page, "socket").contains("required"));

    let missing = browser.get(&shop.api, "/sign-on?to=/account&socket=nobody.localhost").await;
    assert_page(&missing, 404, "There is no service at this address");
    assert_eq!(ways(&missing), ["/account"]);
    let typed = utf8_percent_encode(&format!("{}basket?a=b", url(&shop)), NON_ALPHANUMERIC).to_string();
    let response = browser.get(&shop.api, &format!("/sign-on?to=/account&socket={typed}")).await;
    assert_eq!(response.status, StatusCode::SEE_OTHER, "{}", response.text);
    let start = browser.get(&shop.api, response.header("location").unwrap()).await;
    let asked = parameters(start.header("location").unwrap().split_once('?').unwrap().1);
    let code = provider.log_in(&asked);
    let back = browser.get(&shop.api, &Shop::back(&asked, &code)).await;
    assert_eq!((back.status, back.header("location")), (StatusCode::SEE_OTHER, Some("/account")), "{}", back.text);
    let page = browser.get(&shop.api, "/account").await;
    assert_page(&page, 200, "Logged in as <code>ann@example.com</code> by <code>dex</code>");
    assert_eq!(ways(&page), [url(&shop), "/logout".to_owned()], "{}", page.text);
    assert!(!page.text.contains("name=\"current\""), "the password is kept elsewhere");
}

#[tokio::test]
async fn logging_out_leads_on_wherever_the_browser_came_from() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    // From a socket without a login in this browser.
    let from = &format!("/logout?from={}", shop.socket.dns_name);
    let page = browser.get(&shop.api, from).await;
    assert_page(&page, 200, "Nobody is logged in here");
    assert_eq!(ways(&page), [url(&shop)]);
    for elsewhere in ["/logout", "/logout?from=evil.test", "/logout?from=nobody.localhost"] {
        assert_eq!(ways(&browser.get(&shop.api, elsewhere).await), ["/account"], "{elsewhere}");
    }
    // With the login of another socket.
    shop.grant(&shop.log_in(&mut browser, &provider).await);
    let page = browser.get(&shop.api, from).await;
    assert_page(&page, 200, "<button>Log out everywhere</button>");
    assert_eq!(ways(&page), [url(&shop)], "a link back for a person who stays");
    assert!(page.text.contains(&format!("action=\"{from}\"")), "{}", page.text);
    let out = browser.send(&shop.api, form(from, &[])).await;
    assert_page(&out, 200, "The login has ended");
    assert_eq!(ways(&out), [url(&shop)]);
    // The next visit asks before it redirects to the provider.
    let page = browser.get(&shop.api, &shop.start_path(&shop.request())).await;
    assert_page(&page, 200, "You have logged out in this browser");
    let asked = browser.get(&shop.api, &ways(&page)[0]).await;
    let asked = crate::login::parameters(asked.header("location").unwrap().split_once('?').unwrap().1);
    let code = provider.log_in(&asked);
    shop.grant(&browser.get(&shop.api, &Shop::back(&asked, &code)).await);
    assert_eq!(ways(&browser.send(&shop.api, form("/logout", &[])).await), ["/account"]);
}

#[tokio::test]
async fn letting_a_program_in_does_not_look_like_refusing_it() {
    let (shop, provider) = (Shop::open().await, FakeProvider::start().await);
    shop.add("dex", &provider, json!({})).await;
    let mut browser = Browser::default();
    shop.grant(&shop.log_in(&mut browser, &provider).await);
    let challenge = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    let path = format!(
        "/client?response_type=code&code_challenge_method=S256&code_challenge={challenge}&state=12345678&host={}\
         &redirect_uri=http%3A%2F%2F127.0.0.1%3A4000%2Fcallback",
        shop.socket.dns_name
    );
    let page = browser.get(&shop.api, &path).await;
    assert_page(&page, 200, "<button name=\"decision\" value=\"allow\">Allow</button>");
    assert_page(&page, 200, "<button class=\"other\" name=\"decision\" value=\"deny\">No</button>");
    let code = browser.get(&shop.api, "/device?code=BCDF-GHJK").await;
    assert_page(&code, 404, "role=\"alert\"");
    assert!(!shows_status(&code), "{}", code.text);
}

#[tokio::test]
async fn pages_for_visitors_name_no_commands() {
    let shop = Shop::open().await;
    let mut browser = Browser::default();
    let request = LoginRequest { at: shop.at, ..shop.request() };
    let page = browser.get(&shop.api, &shop.start_path(&request)).await;
    assert_page(&page, 503, "Nobody can log in here yet");
    assert!(!page.text.contains("sallyport ") && page.text.contains("the operator of the service"), "{}", page.text);
}

#[tokio::test]
async fn an_installation_has_its_own_name_and_mark() {
    let api = Api::start_named("Smith & Sons", b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>").await;
    let page = Browser::default().get(&api, "/").await;
    assert_page(&page, 200, "<a href=\"/\">Smith &amp; Sons</a>");
    assert_page(&page, 200, "<img class=\"mark\" src=\"data:image/svg+xml;base64,");
    assert!(page.header(header::CONTENT_SECURITY_POLICY.as_str()).unwrap().contains("img-src data:"));
}
