resource "sallyport_policy" "staff" {
  name = "staff"

  document = jsonencode({
    allow = [{
      who  = { email_domains = ["example.com"] }
      when = { time_zone = "Europe/Zurich", weekly = [{ days = ["mon", "tue", "wed", "thu", "fri"], from = "07:00", to = "19:00" }] }
    }]
  })

  # Deleted after the sockets that no longer name it have changed.
  lifecycle {
    create_before_destroy = true
  }
}

# The policy holds from the first moment of the socket.
resource "sallyport_socket" "intranet" {
  name     = "intranet"
  identity = {}
  policies = [sallyport_policy.staff.name]
}
