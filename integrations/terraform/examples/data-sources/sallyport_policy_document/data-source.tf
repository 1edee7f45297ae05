data "sallyport_policy_document" "staff" {
  allow = [{
    name = "office hours"
    who  = { email_domains = ["example.com"] }
    when = { time_zone = "Europe/Zurich", weekly = [{ days = ["mon", "tue", "wed", "thu", "fri"], from = "08:00", to = "18:00" }] }
  }]
  deny = [{ where = ["198.51.100.0/24"] }]
}

resource "sallyport_policy" "staff" {
  name     = "staff"
  document = data.sallyport_policy_document.staff.json
}
