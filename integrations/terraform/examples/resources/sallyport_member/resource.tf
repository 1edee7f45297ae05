resource "sallyport_member" "ann" {
  email = "ann@example.com"
  role  = "admin"
}
