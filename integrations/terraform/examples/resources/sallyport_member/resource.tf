# Ann gets an invitation, unless she is a member.
resource "sallyport_member" "ann" {
  email = "ann@example.com"
  role  = "admin"
}
