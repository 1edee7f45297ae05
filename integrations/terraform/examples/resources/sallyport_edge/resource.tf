# The modules `edges` and `anycast-fleet` make user data from it.
resource "sallyport_edge" "eu" {
  count  = 2
  name   = "eu-${count.index + 1}"
  region = "eu"
}
